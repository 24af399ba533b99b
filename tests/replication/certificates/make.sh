#!/bin/sh
# Makes the certificates of this directory, which tests of TLS use, all again; they are good from 2020 to 2120, whatever
# the clock of the machine says, and `expired` to 2021.  The keys protect nothing.
set -eu
cd "$(dirname "$0")"
work=$(mktemp -d)
trap 'rm -r "$work"' EXIT

cat > "$work/ca.cnf" <<END
[ca]
default_ca = pair
[pair]
database = $work/index.txt
new_certs_dir = $work
rand_serial = yes
default_md = sha256
policy = any
unique_subject = no
[any]
commonName = supplied
[authority]
basicConstraints = critical, CA:TRUE
keyUsage = critical, keyCertSign, cRLSign
subjectKeyIdentifier = hash
[peer]
basicConstraints = critical, CA:FALSE
subjectAltName = \${ENV::NAMES}
subjectKeyIdentifier = hash
authorityKeyIdentifier = keyid
END
: > "$work/index.txt"
export NAMES=DNS:localhost

new_key() { openssl genpkey -algorithm EC -pkeyopt ec_paramgen_curve:P-256 -out "$1" 2> /dev/null; }

sign() { # name, section, authority, end, then more options
    name=$1 section=$2 authority=$3 end=$4
    shift 4
    openssl req -new -key "$name.key" -subj "/CN=$name" -out "$work/$name.csr"
    openssl ca -batch -notext -config "$work/ca.cnf" -extensions "$section" -startdate 20200101000000Z -enddate "$end" \
        -keyfile "$authority.key" -in "$work/$name.csr" -out "$name.pem" "$@" 2> /dev/null
}

for authority in authority other-authority; do
    new_key "$authority.key"
    sign "$authority" authority "$authority" 21200101000000Z -selfsign
done
peer() { # name, its host names, authority, end
    NAMES=$2
    new_key "$1.key"
    sign "$1" peer "$3" "$4" -cert "$3.pem"
}
peer master DNS:localhost,IP:127.0.0.1 authority 21200101000000Z
peer elsewhere DNS:master.example authority 21200101000000Z
peer slave DNS:slave.example authority 21200101000000Z
peer expired DNS:localhost,IP:127.0.0.1 authority 20210101000000Z
peer stranger DNS:localhost,IP:127.0.0.1 other-authority 21200101000000Z
openssl pkey -in slave.key -aes256 -passout pass:secret -out locked.key
rm authority.key other-authority.key
