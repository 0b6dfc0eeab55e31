"""How much CPU best-effort pods may use, and by which limits: quota, CPU set, pressure. Pure."""
