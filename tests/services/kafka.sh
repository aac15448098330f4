# Apache Kafka from Maven's jars: one node that is broker and controller (KRaft). common.sh documents the functions.

kafka_version=4.3.1
log4j_version=2.25.3
kafka_home=$cache/kafka-$kafka_version

kafka_install() {
    need_command java openjdk-17-jre-headless
    kafka_pom | cmp -s - "$kafka_home/complete.xml" && return
    need_command mvn maven
    say "kafka: fetching the jars of $kafka_version into $kafka_home"
    mkdir -p "$kafka_home"
    kafka_pom >"$kafka_home/pom.xml"
    mvn -B -q -f "$kafka_home/pom.xml" dependency:copy-dependencies -DincludeScope=runtime -DoutputDirectory="$kafka_home/libs" \
        </dev/null >"$root/maven.log" 2>&1 || {
        tail -n 20 "$root/maven.log" >&2
        fail "mvn could not fetch kafka (see $root/maven.log)"
    }
    mv "$kafka_home/pom.xml" "$kafka_home/complete.xml"
}

# kafka-tools has the console tools that `check` uses. Without a binding for slf4j the broker logs nothing.
kafka_pom() {
    cat <<EOF
<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>basestream</groupId>
  <artifactId>kafka-for-tests</artifactId>
  <version>1</version>
  <packaging>pom</packaging>
  <dependencies>
    <dependency>
      <groupId>org.apache.kafka</groupId>
      <artifactId>kafka_2.13</artifactId>
      <version>$kafka_version</version>
    </dependency>
    <dependency>
      <groupId>org.apache.kafka</groupId>
      <artifactId>kafka-tools</artifactId>
      <version>$kafka_version</version>
    </dependency>
    <dependency>
      <groupId>org.apache.logging.log4j</groupId>
      <artifactId>log4j-slf4j-impl</artifactId>
      <version>$log4j_version</version>
    </dependency>
  </dependencies>
</project>
EOF
}

# kafka_java HEAP CLASS ARGUMENT..: Java must expand the star of the class path, the shell must not.
kafka_java() {
    local heap=$1
    shift
    java "-Xmx$heap" -cp "$kafka_home/libs/*" -Dlog4j2.configurationFile="$folder/log4j2.properties" "$@"
}

kafka_prepare() {
    [ -e "$folder/formatted" ] && return
    local which
    for which in controller behind proxied; do
        [ -s "$folder/${which}_port" ] || free_port >"$folder/${which}_port"
    done
    kafka_log4j2 >"$folder/log4j2.properties"
    kafka_server_properties >"$folder/server.properties"
    local id
    id=$(kafka_java 128m kafka.tools.StorageTool random-uuid)
    kafka_java 128m kafka.tools.StorageTool format --standalone -t "$id" -c "$folder/server.properties" </dev/null >>"$log" 2>&1 ||
        fail_with_log "kafka could not format its data folder"
    touch "$folder/formatted"
}

kafka_log4j2() {
    cat <<'EOF'
status = warn
appender.console.type = Console
appender.console.name = console
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = [%d] %p %m (%c)%n
rootLogger.level = info
rootLogger.appenderRef.console.ref = console
EOF
}

# A client connects to the address that the broker advertises. Clients of the PROXIED listener are sent to a port that
# only a test's proxy listens on; the proxy forwards to the port behind.
kafka_server_properties() {
    local controller_port behind_port proxied_port
    controller_port=$(cat "$folder/controller_port")
    behind_port=$(cat "$folder/behind_port")
    proxied_port=$(cat "$folder/proxied_port")
    cat <<EOF
process.roles=broker,controller
node.id=1
controller.quorum.bootstrap.servers=127.0.0.1:$controller_port
controller.listener.names=CONTROLLER
listeners=PLAINTEXT://127.0.0.1:$(port),PROXIED://127.0.0.1:$behind_port,CONTROLLER://127.0.0.1:$controller_port
advertised.listeners=PLAINTEXT://127.0.0.1:$(port),PROXIED://127.0.0.1:$proxied_port,CONTROLLER://127.0.0.1:$controller_port
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,PROXIED:PLAINTEXT,CONTROLLER:PLAINTEXT
inter.broker.listener.name=PLAINTEXT
log.dirs=$folder/data
auto.create.topics.enable=false
offsets.topic.num.partitions=3
offsets.topic.replication.factor=1
transaction.state.log.num.partitions=3
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
share.coordinator.state.topic.num.partitions=3
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
group.initial.rebalance.delay.ms=0
group.min.session.timeout.ms=500
EOF
}

kafka_launch() {
    nohup java -Xms256m -Xmx512m -cp "$kafka_home/libs/*" -Dlog4j2.configurationFile="$folder/log4j2.properties" \
        kafka.Kafka "$folder/server.properties" </dev/null >>"$log" 2>&1 &
    launched=$!
}

# The port opens before the broker serves. The broker logs when it is ready; only lines of this start count.
kafka_ready() {
    # Not in a pipe: grep ends at the line, and a tail that has more to write would fail, and the pipe with it.
    port_is_open "$(port)" && grep -q 'Kafka Server started' < <(tail -n "+$((log_start + 1))" "$log")
}

kafka_finish() { :; }

kafka_env() {
    echo "export BASESTREAM_TEST_KAFKA=kafka://127.0.0.1:$(port)"
    echo "export BASESTREAM_TEST_KAFKA_PROXIED=127.0.0.1:$(cat "$folder/proxied_port")"
    echo "export BASESTREAM_TEST_KAFKA_BEHIND=127.0.0.1:$(cat "$folder/behind_port")"
}

kafka_forget() { rm -rf "$folder"; }
