"""TLS settings of a client's connection to a server. `ClientConfig.tls` holds a `TlsConfig`."""

from __future__ import annotations

import ssl

import attrs


@attrs.frozen(kw_only=True)
class TlsConfig:
    """`ca_file`: PEM with the CAs that the server's certificate may be from; None: those of the system. `certificate_file`,
    `key_file`: PEM with the client's own certificate, and its key where that is not in it."""

    ca_file: str | None = None
    certificate_file: str | None = None
    key_file: str | None = None
    check_hostname: bool = True

    def context(self) -> ssl.SSLContext:
        """Raises OSError (also ssl.SSLError) for files that cannot be used."""
        context = ssl.create_default_context(cafile=self.ca_file)
        context.check_hostname = self.check_hostname
        if self.certificate_file is not None:
            context.load_cert_chain(self.certificate_file, self.key_file)
        return context
