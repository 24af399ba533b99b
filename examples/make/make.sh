#!/usr/bin/env bash
# Makes examples/orders-store.tar.gz again: runs a real RocketMQ 5.3.3 name server and broker on 127.0.0.1, sends three days of
# a small shop (OrdersTraffic.java), consumes some of it, stops the broker cleanly and packs its store directory.
# Needs Java 11+, Maven and about two minutes.  Ports: NAMESERVER_PORT (9876), BROKER_PORT (10911, also -2 and +1).
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
out=${1:-$here/../orders-store.tar.gz}
nameserver_port=${NAMESERVER_PORT:-9876}
broker_port=${BROKER_PORT:-10911}
jars=${ROCKETMQ_JARS:-$here/target/lib}
work=$(mktemp -d)
pids=()

stop_all() {
    for pid in "${pids[@]}"; do kill "$pid" 2>/dev/null || true; done
    for pid in "${pids[@]}"; do wait "$pid" 2>/dev/null || true; done
    rm -rf "$work"
}
trap stop_all EXIT

wait_for_boot() {   # wait_for_boot <pid> <its output>
    for _ in $(seq 200); do
        grep -q "boot success" "$2" && return 0
        kill -0 "$1" 2>/dev/null || break
        sleep 0.3
    done
    echo "did not start:" >&2
    tail -20 "$2" >&2
    return 1
}

[ -d "$jars" ] || mvn -q -B -f "$here/pom.xml" dependency:copy-dependencies -DoutputDirectory="$jars" -DincludeScope=runtime
mkdir -p "$work/classes" "$work/home/conf"
javac -nowarn -encoding UTF-8 -d "$work/classes" -cp "$jars/*" "$here/OrdersTraffic.java"

for name in broker namesrv tools; do
    cat > "$work/home/conf/logback_$name.xml" <<X
<configuration><appender name="A" class="ch.qos.logback.core.FileAppender"><file>$work/$name.log</file>
<encoder><pattern>%d %p %m%n</pattern></encoder></appender><root level="WARN"><appender-ref ref="A"/></root></configuration>
X
done

printf 'listenPort=%s\nbindAddress=127.0.0.1\n' "$nameserver_port" > "$work/namesrv.conf"
# Small files, so that the example packs small; everything else is as a broker comes.
cat > "$work/broker.conf" <<X
brokerClusterName=DefaultCluster
brokerName=broker-a
brokerId=0
namesrvAddr=127.0.0.1:$nameserver_port
brokerIP1=127.0.0.1
brokerIP2=127.0.0.1
bindAddress=127.0.0.1
listenPort=$broker_port
haListenPort=$((broker_port + 1))
storePathRootDir=$work/store
storePathCommitLog=$work/store/commitlog
mappedFileSizeCommitLog=1048576
mappedFileSizeConsumeQueue=120000
maxHashSlotNum=5000
maxIndexNum=20000
mappedFileSizeTimerLog=1048576
autoCreateTopicEnable=false
brokerRole=ASYNC_MASTER
flushDiskType=ASYNC_FLUSH
X

opens=(--add-opens=java.base/sun.nio.ch=ALL-UNNAMED --add-opens=java.base/java.nio=ALL-UNNAMED
    --add-opens=java.base/jdk.internal.ref=ALL-UNNAMED --add-opens=java.base/java.lang=ALL-UNNAMED
    --add-opens=java.base/jdk.internal.misc=ALL-UNNAMED --add-exports=java.base/jdk.internal.ref=ALL-UNNAMED)
export ROCKETMQ_HOME=$work/home

: > "$work/namesrv.out"
java -Xmx128m -XX:+UseSerialGC -Duser.home="$work" -cp "$jars/*" \
    org.apache.rocketmq.namesrv.NamesrvStartup -c "$work/namesrv.conf" > "$work/namesrv.out" 2>&1 &
pids+=($!)
wait_for_boot "${pids[0]}" "$work/namesrv.out"

: > "$work/broker.out"
java -Xms256m -Xmx768m -XX:+UseSerialGC -XX:MaxDirectMemorySize=512m "${opens[@]}" -Duser.home="$work" -cp "$jars/*" \
    org.apache.rocketmq.broker.BrokerStartup -c "$work/broker.conf" > "$work/broker.out" 2>&1 &
pids+=($!)
wait_for_boot "${pids[1]}" "$work/broker.out"

java -Xmx512m -XX:+UseSerialGC "${opens[@]}" -Duser.home="$work" -Dfile.encoding=UTF-8 -Drocketmq.client.logRoot="$work/client-logs" \
    -cp "$work/classes:$jars/*" OrdersTraffic "127.0.0.1:$nameserver_port" "127.0.0.1:$broker_port" 2>&1 | tee "$work/traffic.out" | grep -v '|-'
grep -q '^sent ' "$work/traffic.out"

kill "${pids[1]}"   # SIGTERM: the broker flushes, removes its abort file and goes
wait "${pids[1]}" 2>/dev/null || true

tar -S --format=gnu --sort=name --owner=0 --group=0 --numeric-owner -C "$work" -cf - store | gzip -9n > "$out"
ls -l "$out"
