# Runs until all other services have ended, then removes the pods' cgroups (first argument), leaves first.
# systemd removes cgroups with its own names (….slice) itself.
top=${1%%/*}
end() {
    find "/host/cgroup/$top" /host/cgroup/*/"$top" -depth -type d -exec rmdir {} ';' 2>/dev/null
    exit 0
}
trap end TERM INT
while :; do
    sleep 3600 &
    wait $!
done
