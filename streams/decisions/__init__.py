"""Pure decision functions, one file each: values in, one value with its terms out."""
