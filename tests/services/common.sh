# Shared by all service scripts: folders, free ports, bounded waits, and processes that we started. Sourced, never run.
#
# A service is a file `SERVICE.sh` in this folder with the functions
#   SERVICE_install   installs the program, unless it is installed
#   SERVICE_prepare   creates its data and settings for the port in $folder/port, unless they exist
#   SERVICE_launch    starts it; sets `launched` to its process id
#   SERVICE_ready     succeeds once it responds
#   SERVICE_finish    does what a first start needs once it responds (may be empty)
#   SERVICE_env       prints its lines of the `env` file
#   SERVICE_forget    deletes data and settings, keeps the log
# A function finds its folder in $folder and its log in $log.

set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
repository=$(cd "$here/../.." && pwd)
root=${BASESTREAM_SERVICES_DIR:-$repository/.services}
mkdir -p "$root"
root=$(cd "$root" && pwd)
cache=${XDG_CACHE_HOME:-$HOME/.cache}/basestream
all_services=(kafka postgres s3 toxiproxy)

for service in "${all_services[@]}"; do
    # shellcheck source=/dev/null
    . "$here/$service.sh"
done

say() { printf 'services: %s\n' "$*" >&2; }

fail() {
    say "$*"
    exit 1
}

# Points $folder and $log at a service.
use() {
    case " ${all_services[*]} " in
        *" $1 "*) ;;
        *) fail "unknown service '$1', expected one of: ${all_services[*]}" ;;
    esac
    service=$1
    folder=$root/$service
    log=$root/$service.log
    mkdir -p "$folder"
}

port() { cat "$folder/port"; }

port_is_open() { (exec 3<>"/dev/tcp/127.0.0.1/$1") 2>/dev/null; }

# Prints a free port below the range from which the kernel takes the ports of outgoing connections.
free_port() {
    local candidate attempt
    for attempt in $(seq 100); do
        candidate=$((20000 + (RANDOM * 32768 + RANDOM) % 12000))
        grep -qsx "$candidate" "$root"/*/*port && continue
        port_is_open "$candidate" && continue
        echo "$candidate"
        return
    done
    fail "found no free port between 20000 and 32000 in $attempt attempts"
}

# Prints a process's start time. It distinguishes our process from a later one with the same id.
born() {
    if [ -r "/proc/$1/stat" ]; then
        sed 's/.*) //' "/proc/$1/stat" | cut -d ' ' -f 20
    else
        ps -o lstart= -p "$1" 2>/dev/null || true
    fi
}

record_process() { printf '%s\n%s\n' "$1" "$(born "$1")" >"$folder/pid"; }

# Prints the recorded process id if that same process is still alive (a zombie is not).
our_process() {
    local id birth
    [ -s "$folder/pid" ] || return 1
    { read -r id && read -r birth; } <"$folder/pid" || return 1
    [ "$(born "$id")" = "$birth" ] || return 1
    if [ -r "/proc/$id/stat" ] && [ "$(sed 's/.*) //' "/proc/$id/stat" | cut -d ' ' -f 1)" = Z ]; then
        return 1
    fi
    kill -0 "$id" 2>/dev/null || return 1
    echo "$id"
}

# wait_until SECONDS COMMAND..: polls until the command succeeds.
wait_until() {
    local end=$((SECONDS + $1))
    shift
    until "$@"; do
        [ "$SECONDS" -lt "$end" ] || return 1
        sleep 0.2
    done
}

is_gone() { ! our_process >/dev/null; }

answers_or_died() { is_gone || "${service}_ready"; }

fail_with_log() {
    say "$1; the end of $log:"
    tail -n 40 "$log" >&2 || true
    exit 1
}

# Starts a service on its existing port and data, and waits until it responds.
start_service() {
    use "$1"
    [ -s "$folder/port" ] || fail "$service was never started here ($folder): run tests/services/up $service"
    if our_process >/dev/null; then
        say "$service already runs as process $(our_process) on port $(port)"
        return
    fi
    port_is_open "$(port)" && fail "port $(port) of $service is taken by a process that is not ours"
    local began=$SECONDS
    printf -- '--- start %s\n' "$(date -u +%Y-%m-%dT%H:%M:%SZ)" >>"$log"
    log_start=$(wc -l <"$log")
    "${service}_launch"
    record_process "$launched"
    wait_until 180 answers_or_died || fail_with_log "$service does not answer on port $(port) after 180 s"
    is_gone && fail_with_log "$service ended while it was starting"
    "${service}_finish"
    say "$service runs as process $launched on port $(port), ready after $((SECONDS - began)) s"
}

# Stops a service with TERM, and with KILL if it is still running after 30 s.
stop_service() {
    use "$1"
    local id
    if id=$(our_process); then
        kill -TERM "$id"
        kill -CONT "$id" # one stopped by a fault test could not hear the TERM
        if ! wait_until 30 is_gone; then
            say "$service (process $id) did not end within 30 s of SIGTERM: SIGKILL"
            kill -KILL "$id"
            wait_until 10 is_gone || fail "$service (process $id) is still there after SIGKILL"
        fi
        say "$service (process $id) ended"
    fi
    rm -f "$folder/pid"
    [ ! -s "$folder/port" ] || wait_until 10 port_is_closed || fail "port $(port) of $service is still open"
}

port_is_closed() { ! port_is_open "$(port)"; }

# Writes the `env` file for the services that were started.
write_env() {
    local name
    {
        echo "# Written by tests/services/up. Use it with: . $root/env"
        echo "export BASESTREAM_SERVICES_DIR=$root"
        for name in "${all_services[@]}"; do
            use "$name"
            [ ! -s "$folder/port" ] || "${name}_env"
        done
    } >"$root/env.new"
    mv "$root/env.new" "$root/env"
}

# Checks that a command exists. If it does not, installs its package of the operating system, which needs root or sudo.
need_command() {
    local command=$1 package=$2
    command -v "$command" >/dev/null && return
    say "$command is missing: installing $package"
    install_package "$package"
    command -v "$command" >/dev/null || fail "$command is still missing after installing $package"
}

install_package() {
    local as_root=()
    command -v apt-get >/dev/null || fail "no apt-get here: install $1 by hand"
    if [ "$(id -u)" != 0 ]; then
        command -v sudo >/dev/null || fail "not root and no sudo: install $1 by hand"
        as_root=(sudo -n)
    fi
    {
        "${as_root[@]}" apt-get update -q
        "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends "$1"
    } </dev/null >"$root/apt.log" 2>&1 || {
        tail -n 20 "$root/apt.log" >&2
        fail "apt-get could not install $1 (see $root/apt.log)"
    }
}
