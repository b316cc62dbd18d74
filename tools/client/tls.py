"""TLS settings of a client's connection to a server. `ClientConfig.tls` holds a `TlsConfig`."""

from __future__ import annotations

import ssl

import attrs


@attrs.frozen(kw_only=True)
class TlsConfig:
    """TLS settings of a connection. Files are PEM."""

    ca_file: str | None = None
    """CAs that may have signed the server's certificate. None: those of the system."""
    certificate_file: str | None = None
    """The client's own certificate. None: it has none."""
    key_file: str | None = None
    """Key of that certificate. None: it is in the same file."""
    check_hostname: bool = True
    """Check that the certificate has the server's name."""

    def context(self) -> ssl.SSLContext:
        """Raises OSError (also ssl.SSLError) for files that cannot be used."""
        context = ssl.create_default_context(cafile=self.ca_file)
        context.check_hostname = self.check_hostname
        if self.certificate_file is not None:
            context.load_cert_chain(self.certificate_file, self.key_file, password=_no_passphrase)
        return context


def _no_passphrase() -> str:
    """Instead of a question at the terminal, which would stop a program that runs unattended."""
    raise ssl.SSLError("the key of the certificate has a passphrase. Use a key without one")
