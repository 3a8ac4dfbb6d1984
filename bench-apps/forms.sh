#!/bin/sh
# The forms of an application, built and measured.
#
#   forms.sh build em3d FOLDER                            # em3d-plain, -transparent, -tuned, -custom, -mpi
#   forms.sh measure em3d FOLDER RUNS "NODES" ARGUMENTS   # forms.sh measure em3d /tmp/e 9 "1 2" --iters 100
#
# Runs are in turn, one of each form, so that what disturbs the machine disturbs all. Printed: for each form and number of nodes the median time of the
# iterations, its ratio to `plain` (the median of the ratios of runs in the same turn), and misses, messages and bytes of the last run. A form whose
# checksum differs ends it with status 1. Without mpicc or mpirun the form `mpi` is skipped, in a line.
# PRIORITY="chrt -f 10" in the environment goes in front of every run, for no more nodes than there are processors; CUSTOM="--access guard" are options for
# `blizzard run` of the form `custom`; BLIZZARD and CC name the tools.
set -eu
blizzard=${BLIZZARD:-blizzard} cc=${CC:-cc} priority=${PRIORITY:-} custom=${CUSTOM:-}
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
usage() { sed -n 's/^#   //p' "$0" >&2; exit 2; }
[ $# -ge 3 ] || usage
what=$1 application=$2 folder=$3
sources=$(dirname "$0")/$application
[ -d "$sources" ] || { echo "forms.sh: no application $application" >&2; exit 2; }

has_mpi() { command -v mpicc >/dev/null && command -v mpirun >/dev/null; }

build() {
    mkdir -p "$folder"
    flags="-O2 -Wall -Wextra $("$blizzard" config --cflags)" libs="$("$blizzard" config --libs) -lm"
    $cc $flags "$sources/$application.c" $libs -o "$folder/$application-transparent"
    cp "$folder/$application-transparent" "$folder/$application-plain"
    $cc $flags -DTUNED "$sources/$application.c" $libs -o "$folder/$application-tuned"
    $cc $flags "$sources/custom.c" $libs -o "$folder/$application-custom"
    if has_mpi; then mpicc -O2 -Wall -Wextra "$sources/mpi.c" -lm -o "$folder/$application-mpi"
    else echo "forms.sh: skipped: the form mpi needs mpicc and mpirun (Debian: openmpi-bin, libopenmpi-dev)" >&2; fi
}

# One run: a line "form nodes turn seconds misses messages bytes".
one() {
    form=$1 nodes=$2 turn=$3 program=$folder/$application-$1 stats=$folder/stats
    shift 3
    rm -f "$stats"
    case $form in
    plain) $priority "$program" "$@" ;;
    mpi) $priority mpirun --oversubscribe -n "$nodes" "$program" "$@" ;;
    custom) $priority "$blizzard" run -n "$nodes" $custom --stats "$stats" -- "$program" "$@" ;;
    *) $priority "$blizzard" run -n "$nodes" --stats "$stats" -- "$program" "$@" ;;
    esac >"$folder/out" 2>"$folder/err" || { cat "$folder/err" >&2; exit 1; }
    sum=$(grep '^checksum ' "$folder/out")
    [ "${expected:=$sum}" = "$sum" ] || { echo "forms.sh: $form on $nodes nodes: $sum, expected $expected" >&2; exit 1; }
    counts="- - -"
    [ -f "$stats" ] && counts=$(tr -d ' ,"' <"$stats" | awk -F: '
        /^totals:/ { on = 1 }
        /^}/ { on = 0 }
        on && ($1 == "read_misses" || $1 == "write_misses" || $1 == "upgrades" || $1 == "user_faults") { misses += $2 }
        on && $1 == "messages_sent" { messages = $2 }
        on && ($1 == "bytes_sent" || $1 == "bulk_bytes") { bytes += $2 }
        END { print misses + 0, messages + 0, bytes + 0 }')
    echo "$form $nodes $turn $(sed -n 's/^[a-z0-9]*: \([0-9.]*\) s for.*/\1/p' "$folder/err") $counts"
}

measure() {
    [ $# -ge 2 ] || usage
    runs=$1 list=$2
    shift 2
    turn=0
    while [ $turn -lt "$runs" ]; do
        turn=$((turn + 1))
        one plain 1 $turn "$@"
        for nodes in $list; do
            for form in transparent tuned custom; do one $form "$nodes" $turn "$@"; done
            [ -x "$folder/$application-mpi" ] && one mpi "$nodes" $turn "$@"
        done
    done >"$folder/runs"
    awk '
        function median(list, count,    i, j, t) {
            for (i = 2; i <= count; i++)
                for (j = i; j > 1 && list[j] < list[j - 1]; j--) { t = list[j]; list[j] = list[j - 1]; list[j - 1] = t }
            return count % 2 ? list[(count + 1) / 2] : (list[count / 2] + list[count / 2 + 1]) / 2
        }
        $1 == "plain" { plain[$3] = $4 }
        {
            key = $1 " | " $2
            if (!(key in count)) keys[++all] = key
            count[key]++
            time[key, count[key]] = $4; ratio[key, count[key]] = $4 / plain[$3]
            last[key] = $5 " | " $6 " | " $7
        }
        END {
            print "| form | nodes | time | to plain | misses | messages | bytes |"
            print "|---|--:|--:|--:|--:|--:|--:|"
            for (k = 1; k <= all; k++) {
                n = count[keys[k]]
                for (i = 1; i <= n; i++) { t[i] = time[keys[k], i]; r[i] = ratio[keys[k], i] }
                printf "| %s | %.4f s | %.2f | %s |\n", keys[k], median(t, n), median(r, n), last[keys[k]]
            }
        }' "$folder/runs"
}

case $what in
build) build ;;
measure) shift 3; measure "$@" ;;
*) usage ;;
esac
