# Stands above the pods' groups, the first argument, and removes them when it ends, from the leaves to the top.
# With systemd's names (….slice) there is nothing to remove: systemd has done it.
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
