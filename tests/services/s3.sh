# S3 served by versitygw over a folder: each sub-folder is a bucket. common.sh documents the functions.

versitygw_version=v1.8.0
versitygw=${BASESTREAM_VERSITYGW:-$cache/versitygw-$versitygw_version/versitygw}
s3_access_key=basestream
s3_secret_key=basestream-secret

s3_install() {
    need_command curl curl
    [ -x "$versitygw" ] && return
    command -v go >/dev/null || fail "go is missing: install Go 1.21 or newer, or set BASESTREAM_VERSITYGW to a versitygw program"
    say "s3: building versitygw $versitygw_version into $(dirname "$versitygw") (about 2 minutes)"
    GOBIN=$(dirname "$versitygw") GOFLAGS= go install "github.com/versity/versitygw/cmd/versitygw@$versitygw_version" </dev/null >"$root/go.log" 2>&1 || {
        tail -n 20 "$root/go.log" >&2
        fail "go could not build versitygw (see $root/go.log)"
    }
}

# Object attributes are stored as files in `attributes`, because not every file system supports extended attributes.
s3_prepare() { mkdir -p "$folder/data/basestream" "$folder/attributes"; }

s3_launch() {
    ROOT_ACCESS_KEY=$s3_access_key ROOT_SECRET_KEY=$s3_secret_key nohup "$versitygw" --port "127.0.0.1:$(port)" --health /healthz \
        posix --sidecar "$folder/attributes" "$folder/data" </dev/null >>"$log" 2>&1 &
    launched=$!
}

s3_ready() { curl -sf -m 2 -o /dev/null "http://127.0.0.1:$(port)/healthz"; }

s3_finish() { :; }

s3_env() {
    cat <<EOF
export BASESTREAM_TEST_S3=s3://basestream/tests
export AWS_ACCESS_KEY_ID=$s3_access_key
export AWS_SECRET_ACCESS_KEY=$s3_secret_key
export AWS_ENDPOINT=http://127.0.0.1:$(port)
export AWS_ALLOW_HTTP=true
export AWS_REGION=us-east-1
EOF
}

s3_forget() { rm -rf "$folder"; }
