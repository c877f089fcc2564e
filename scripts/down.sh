#!/bin/bash
# Stops the cluster that `make up` started for this checkout, and nothing else.
set -euo pipefail
source "$(dirname "$0")/cluster.sh"
source "$(dirname "$0")/up-folder.sh"

if is_up "$folder"; then
    stop_cluster "$folder"
    echo "stopped; the data stays in $folder"
else
    echo "not up"
fi
