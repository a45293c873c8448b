"""Why a TLS connection ended, in a sentence for the log."""

from __future__ import annotations

import ssl
from typing import Final

_SENTENCES: Final = {
    "CERTIFICATE_VERIFY_FAILED": "its certificate is not trusted",
    "PEER_DID_NOT_RETURN_A_CERTIFICATE": "it shows no certificate, and one is required",
    "NO_SHARED_CIPHER": "it speaks none of our cipher suites",
    "UNSUPPORTED_PROTOCOL": "it speaks none of our versions of TLS",
    "VERSION_TOO_LOW": "it speaks none of our versions of TLS",
    "TLSV1_ALERT_PROTOCOL_VERSION": "it speaks none of our versions of TLS",
    "TLSV1_ALERT_UNKNOWN_CA": "it does not trust our certificate",
    "SSLV3_ALERT_CERTIFICATE_UNKNOWN": "it does not accept our certificate",
    "SSLV3_ALERT_BAD_CERTIFICATE": "it does not accept our certificate",
    "SSLV3_ALERT_CERTIFICATE_EXPIRED": "it says that our certificate has expired",
    "TLSV13_ALERT_CERTIFICATE_REQUIRED": "it requires a certificate of ours, and we have none",
    "SSLV3_ALERT_HANDSHAKE_FAILURE": "it refuses: no common cipher suite, or it wants a certificate of ours",
    "WRONG_VERSION_NUMBER": "it does not speak TLS",
    "HTTP_REQUEST": "it does not speak TLS, but HTTP",
    "DECRYPTION_FAILED_OR_BAD_RECORD_MAC": "what arrived is not what was sent",
}


class HandshakeFailed(Exception):
    """The message is a sentence about the other side."""


class NotTls(HandshakeFailed):
    """The first bytes are not those of a handshake."""

    def __init__(self, first: bytes) -> None:
        super().__init__(f"it does not speak TLS, and this listener speaks nothing else (it sent {first!r})")


def reason_of(error: BaseException) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is not trusted: {error.verify_message.rstrip('.')}"
    if isinstance(error, ssl.SSLError):
        reason = error.reason or type(error).__name__
        return f"{_SENTENCES[reason]} ({reason})" if reason in _SENTENCES else f"TLS failed ({reason})"
    return str(error) or type(error).__name__
