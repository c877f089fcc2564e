#!/bin/bash
# Stops the HTTP server and the cluster that `make up` started for this checkout, and nothing else.
set -euo pipefail
source "$(dirname "$0")/cluster.sh"
source "$(dirname "$0")/sidecar.sh"
source "$(dirname "$0")/up-folder.sh"

if [ -n "$(sidecar_pid "$folder")" ]; then
    stop_sidecar "$folder"
    echo "stopped the HTTP server"
fi
if is_up "$folder"; then
    stop_cluster "$folder"
    echo "stopped; the data stays in $folder"
else
    echo "not up"
fi
