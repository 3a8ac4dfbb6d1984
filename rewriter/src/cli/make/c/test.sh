#!/bin/sh
# One plain process and two nodes give the same answer.
set -e
plain=$(./@NAME@)
nodes=$(${BLIZZARD:-blizzard} run -n 2 -- ./@NAME@)
if [ "$plain" != "$nodes" ]; then
    echo "plain: $plain; two nodes: $nodes" >&2
    exit 1
fi
echo "the same on two nodes: $plain"
