# toxiproxy sits between a client and a service and delays, cuts or drops the traffic. common.sh documents the
# functions.

toxiproxy_version=v2.12.0
toxiproxy=${BASESTREAM_TOXIPROXY:-$cache/toxiproxy-$toxiproxy_version/server}

toxiproxy_install() {
    need_command curl curl
    [ -x "$toxiproxy" ] && return
    command -v go >/dev/null || fail "go is missing: install Go 1.21 or newer, or set BASESTREAM_TOXIPROXY to a toxiproxy server"
    say "toxiproxy: building $toxiproxy_version into $(dirname "$toxiproxy")"
    GOBIN=$(dirname "$toxiproxy") GOFLAGS= go install "github.com/Shopify/toxiproxy/v2/cmd/server@$toxiproxy_version" </dev/null >"$root/toxiproxy-go.log" 2>&1 || {
        tail -n 20 "$root/toxiproxy-go.log" >&2
        fail "go could not build toxiproxy (see $root/toxiproxy-go.log)"
    }
}

# Tests create proxies over its HTTP interface. They are gone when it stops.
toxiproxy_prepare() { :; }

toxiproxy_launch() {
    nohup "$toxiproxy" -host 127.0.0.1 -port "$(port)" </dev/null >>"$log" 2>&1 &
    launched=$!
}

toxiproxy_ready() { curl -sf -m 2 -o /dev/null "http://127.0.0.1:$(port)/version"; }

toxiproxy_finish() { :; }

toxiproxy_env() { echo "export BASESTREAM_TEST_TOXIPROXY=http://127.0.0.1:$(port)"; }

toxiproxy_forget() { rm -rf "$folder"; }
