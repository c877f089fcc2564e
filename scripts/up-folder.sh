# To be sourced: $folder, where `make up` keeps the cluster of this checkout. A socket's path has at
# most 107 bytes, and the checkout may be in a home that the server's user cannot enter.
folder=${QUEEN_DATA:-/var/tmp/queen-$(printf %s "$root" | sha256sum | cut -c 1-12)}
