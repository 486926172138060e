#!/bin/sh
# How mpirun gets onto a host played by a network namespace, in place of ssh: agent.sh ADDRESS COMMAND...
# The last number of the address says which host. A host name of its own keeps Open MPI's session folders
# apart and makes it send over TCP; KVRING_CLUSTER_CORES has the cores of hosts 0, 1, ... ("-" for any).
host=$(( ${1##*.} - 1 ))
shift
namespace=$KVRING_CLUSTER_NAME-h$host
set -- ip netns exec "$namespace" unshare --uts sh -c "hostname $namespace; exec sh -c \"\$0\"" "$*"
cores=$(echo "$KVRING_CLUSTER_CORES" | cut -d' ' -f$(( host + 1 )))
[ "$cores" = - ] || set -- taskset --cpu-list "$cores" "$@"
exec "$@"
