# PostgreSQL from the distribution's package, with its own data folder and port. common.sh documents the functions.
#
# initdb refuses to run as root; then the server runs as the package's user `postgres`. That user cannot reach a
# repository in root's home, so the data is in a new folder under ${TMPDIR:-/tmp}, recorded in $folder/home. Its short
# path also fits the limit of a socket's path. BASESTREAM_POSTGRES_SETTINGS adds lines to its settings.

postgres_install() { postgres_programs >/dev/null || { say "postgres is missing: installing it" && install_package postgresql; }; }

# Prints the folder with initdb and pg_ctl: Debian's newest, or the one on the path.
postgres_programs() {
    local found
    found=$(find /usr/lib/postgresql -maxdepth 3 -path '*/bin/initdb' 2>/dev/null | sort -t / -k 5 -n | tail -n 1)
    [ -n "$found" ] || found=$(command -v initdb) || return 1
    dirname "$found"
}

# Runs a command as the user that owns the data, in a folder that this user can enter.
as_postgres() {
    if [ "$(id -u)" = 0 ]; then
        (cd / && runuser -u postgres -- "$@")
    else
        (cd / && "$@")
    fi
}

postgres_prepare() {
    [ -s "$folder/home" ] && [ -s "$(postgres_home)/data/PG_VERSION" ] && return
    local home
    home=$(mktemp -d "${TMPDIR:-/tmp}/basestream-postgres.XXXXXX")
    echo "$home" >"$folder/home"
    mkdir "$home/socket"
    echo basestream >"$home/password"
    [ "$(id -u)" != 0 ] || chown -R postgres: "$home"
    as_postgres "$(postgres_programs)/initdb" -D "$home/data" -U basestream --pwfile="$home/password" --encoding=UTF8 --locale=C \
        --auth-local=scram-sha-256 --auth-host=scram-sha-256 </dev/null >>"$log" 2>&1 || {
        rm -rf "$home" "$folder/home"
        fail_with_log "initdb failed"
    }
    as_postgres tee -a "$home/data/postgresql.conf" >/dev/null <<EOF
listen_addresses = '127.0.0.1'
port = $(port)
unix_socket_directories = '$home/socket'
max_connections = 200
${BASESTREAM_POSTGRES_SETTINGS:-}
EOF
}

postgres_home() { cat "$folder/home"; }

# pg_ctl handles a server that was killed: it waits for the shared memory of the last child processes and removes the
# old lock.
postgres_launch() {
    local data server_log
    data=$(postgres_home)/data
    server_log=$(postgres_home)/log
    [ ! -e "$server_log" ] || as_postgres cat "$server_log" >>"$log"
    as_postgres rm -f "$server_log"
    local attempt
    for attempt in 1 2 3 4 5; do
        if as_postgres "$(postgres_programs)/pg_ctl" -D "$data" -l "$server_log" -w -t 60 start </dev/null >>"$log" 2>&1; then
            launched=$(head -n 1 "$data/postmaster.pid")
            return
        fi
        sleep "$attempt"
    done
    as_postgres cat "$server_log" >>"$log"
    fail_with_log "pg_ctl could not start postgres"
}

postgres_sql() { PGPASSWORD=basestream "$(postgres_programs)/psql" -X -q -A -t -h 127.0.0.1 -p "$(port)" -U basestream -d "$1" -c "$2" </dev/null; }

postgres_ready() { postgres_sql postgres 'SELECT 1' >/dev/null 2>&1; }

postgres_finish() {
    [ "$(postgres_sql postgres "SELECT count(*) FROM pg_database WHERE datname = 'basestream'")" = 1 ] ||
        postgres_sql postgres 'CREATE DATABASE basestream'
}

postgres_env() { echo "export BASESTREAM_TEST_POSTGRES=postgres://basestream:basestream@127.0.0.1:$(port)/basestream"; }

postgres_forget() {
    if [ -s "$folder/home" ]; then
        [ ! -e "$(postgres_home)/log" ] || cat "$(postgres_home)/log" >>"$log"
        rm -rf "$(postgres_home)"
    fi
    rm -rf "$folder"
}
