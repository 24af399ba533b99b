"""Mutual TLS on the replication link of a pair of ours: both sides show a certificate, and take no peer without."""

import ssl

from rmqstore.config import HaTls
from rmqstore.errors import NotAStore, Rejected
from rmqstore.files.reading import StorePath, canonical_path, read_small_file

_PEM_SIZE_MAX = 1024 * 1024
_CERTIFICATE = b"-----BEGIN CERTIFICATE-----"


def master_side(files: HaTls) -> ssl.SSLContext:
    """For connections of slaves, which must show a certificate of the authority.  Raises Rejected."""
    context = _context(ssl.PROTOCOL_TLS_SERVER, files)
    context.verify_mode = ssl.CERT_REQUIRED
    # A slave attaches once in days: nothing is kept for it to come back quicker, and no keys are agreed on again.
    context.options |= ssl.OP_NO_TICKET | ssl.OP_NO_RENEGOTIATION
    context.num_tickets = 0
    return context


def slave_side(files: HaTls, host_name: str) -> ssl.SSLContext:
    """For connections to a master, whose certificate must be of the authority and, as the caller asks for it when it
    connects, have `host_name`.  Raises Rejected."""
    context = _context(ssl.PROTOCOL_TLS_CLIENT, files)
    try:
        context.wrap_bio(ssl.MemoryBIO(), ssl.MemoryBIO(), server_hostname=host_name)
    except (ValueError, TypeError) as error:
        raise Rejected(f"the host name {host_name!r}: {error}") from None
    return context


def reason_of(error: OSError) -> str:
    """Why a connection failed, in words."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"TLS: {error.verify_message}"
    if isinstance(error, ssl.SSLEOFError | ssl.SSLZeroReturnError):
        return "the other side closed the connection"
    if isinstance(error, ssl.SSLError):
        return f"TLS: {_why(error)}"
    return error.strerror or str(error)


def _context(side: int, files: HaTls) -> ssl.SSLContext:
    certificate = _pem("the certificate", files.cert_file, _CERTIFICATE)
    key = _pem("the private key", files.key_file, b"PRIVATE KEY-----")
    authority = _pem("the authority's certificate", files.ca_file, _CERTIFICATE)
    context = ssl.SSLContext(side)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    _load(context, "the authority's certificate", authority)
    _load(ssl.SSLContext(side), "the certificate", certificate)  # for what is wrong with it alone

    def refuse_passphrase() -> bytes:  # without this OpenSSL asks the terminal, and waits
        raise Rejected(f"the private key {key} has a passphrase: remove the passphrase (openssl pkey -in … -out …)")

    try:
        context.load_cert_chain(certificate, key, password=refuse_passphrase)
    except OSError as error:
        if isinstance(error, ssl.SSLError) and error.reason == "KEY_VALUES_MISMATCH":
            raise Rejected(f"the private key {key} does not belong to the certificate {certificate}") from None
        raise Rejected(f"the private key {key} cannot be used with {certificate}: {_why(error)}") from None
    return context


def _load(context: ssl.SSLContext, what: str, path: str) -> None:
    try:
        context.load_verify_locations(path)
    except OSError as error:
        raise Rejected(f"{what} {path} cannot be read: {_why(error)}") from None


def _why(error: OSError) -> str:
    if isinstance(error, ssl.SSLError):
        return error.reason.replace("_", " ").lower() if error.reason else "it is damaged, or not a PEM file"
    return error.strerror or str(error)


def _pem(what: str, path: StorePath, mark: bytes) -> str:
    """The path of a PEM file, made whole.  Raises Rejected for what is none, or may not be read."""
    try:
        whole = canonical_path(path)
        text = read_small_file(whole, _PEM_SIZE_MAX)
    except NotAStore as error:
        raise Rejected(f"{what} {error.path}: {error.reason.partition(';')[0]}; give a PEM file") from None
    if text is None:
        raise Rejected(f"{what} {whole}: no such file; give a PEM file")
    if mark not in text:
        raise Rejected(f"{what} {whole} is not in this file: give a PEM file with a line {mark.decode()}")
    return whole
