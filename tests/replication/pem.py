"""The certificates of `certificates/`, as a store of ours is told of them; its make.sh says what each is."""

from pathlib import Path

from rmqstore.config import HaTls

PEM = Path(__file__).parent / "certificates"


def files(name: str, authority: str = "authority") -> HaTls:
    """Those of the peer of this name, which takes peers of that authority."""
    return HaTls(cert_file=PEM / f"{name}.pem", key_file=PEM / f"{name}.key", ca_file=PEM / f"{authority}.pem")
