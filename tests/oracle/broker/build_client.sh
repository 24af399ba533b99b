#!/bin/bash
# build_client.sh <release> <directory> : class path and compiled BrokerClient and LedgerNode of a release of RocketMQ.
# The 4.9 releases have the same classes in other packages, and producers that cannot be told their topics beforehand.
set -euo pipefail
release=$1 target=$(mkdir -p "$2" && cd "$2" && pwd) here=$(cd "$(dirname "$0")" && pwd)
sources=$(mktemp -d)
trap 'rm -r "$sources"' EXIT
mvn -q -B -f "$here/pom-$release.xml" org.apache.maven.plugins:maven-dependency-plugin:2.8:build-classpath \
    -Dmdep.outputFile="$target/dependencies.txt"
case $release in
    4.*) sed -e 's/org\.apache\.rocketmq\.remoting\.protocol\./org.apache.rocketmq.common.protocol./' \
             -e 's/common\.protocol\.subscription/common.subscription/' -e '/\.setTopics(/d' \
             "$here/BrokerClient.java" > "$sources/BrokerClient.java";;
    *) cp "$here/BrokerClient.java" "$sources";;
esac
mkdir -p "$target/classes"
javac -nowarn -XDsuppressNotes -d "$target/classes" -cp "$(cat "$target/dependencies.txt")" \
    "$sources/BrokerClient.java" "$here/LedgerNode.java"
mv "$target/dependencies.txt" "$target/classpath.txt"
