//! The URL of a database.

use std::fmt;
use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::verify_server_cert_signed_by_trust_anchor;
use rustls::crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme};
use tokio_postgres::Config;
use tokio_postgres::config::Host;

use crate::error::PostgresError;

/// A database, as its URL names it.
pub(crate) struct ServerUrl {
    pub(crate) config: Config,
    pub(crate) tls: TlsMode,
}

/// Whether a connection is encrypted.
pub(crate) enum TlsMode {
    Off,
    IfOffered(Arc<ClientConfig>),
    Required(Arc<ClientConfig>),
}

/// What `sslmode` says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SslMode {
    Disable,
    Prefer,
    Require,
    VerifyCa,
    VerifyFull,
}

/// Reads `postgres://user:password@host:port/database?parameters`, with several hosts if there are standbys.
pub(crate) fn parse(url: &str) -> Result<ServerUrl, PostgresError> {
    if !url.starts_with("postgres://") && !url.starts_with("postgresql://") {
        return Err(PostgresError::url("the url must begin with postgres:// or postgresql://"));
    }
    let (mut plain, query) = match url.split_once('?') {
        Some((plain, query)) => (plain.to_owned(), query),
        None => (url.to_owned(), ""),
    };
    let (mut mode, mut root_certificate) = (None, None);
    let mut separator = '?';
    for parameter in query.split('&').filter(|parameter| !parameter.is_empty()) {
        match parameter.split_once('=') {
            Some(("sslmode", value)) => mode = Some(ssl_mode(value)?),
            Some(("sslrootcert", path)) => root_certificate = Some(path.to_owned()),
            // The driver knows the others.
            _ => {
                plain.push(separator);
                plain.push_str(parameter);
                separator = '&';
            }
        }
    }
    let config: Config = plain.parse().map_err(|error: tokio_postgres::Error| {
        PostgresError::url(format!("the url is not understood: {error}"))
    })?;
    let (hosts, addresses) = (config.get_hosts().len(), config.get_hostaddrs().len());
    if hosts == 0 && addresses == 0 {
        return Err(PostgresError::url("the url names no host"));
    }
    if hosts > 0 && addresses > 0 && hosts != addresses {
        return Err(PostgresError::url(format!("the url names {hosts} hosts, but {addresses} addresses")));
    }
    let ports = config.get_ports().len();
    if ports > 1 && ports != hosts.max(addresses) {
        return Err(PostgresError::url(format!(
            "the url names {} hosts, but {ports} ports",
            hosts.max(addresses)
        )));
    }
    let mode = mode.unwrap_or_else(|| default_mode(&config));
    let tls = match mode {
        SslMode::Disable => TlsMode::Off,
        SslMode::Prefer => TlsMode::IfOffered(tls_config(mode, None)?),
        SslMode::Require | SslMode::VerifyCa | SslMode::VerifyFull => {
            TlsMode::Required(tls_config(mode, root_certificate.as_deref())?)
        }
    };
    Ok(ServerUrl { config, tls })
}

fn ssl_mode(value: &str) -> Result<SslMode, PostgresError> {
    Ok(match value {
        "disable" => SslMode::Disable,
        "prefer" => SslMode::Prefer,
        "require" => SslMode::Require,
        "verify-ca" => SslMode::VerifyCa,
        "verify-full" => SslMode::VerifyFull,
        other => {
            return Err(PostgresError::url(format!(
                "sslmode={other} is not supported, only disable, prefer, require, verify-ca and verify-full are"
            )));
        }
    })
}

/// On this machine there is no wire to protect; anywhere else the server must show who it is.
fn default_mode(config: &Config) -> SslMode {
    let is_here = |host: &Host| match host {
        Host::Tcp(name) => matches!(name.as_str(), "localhost" | "127.0.0.1" | "::1"),
        #[cfg(unix)]
        Host::Unix(_) => true,
    };
    // Connections go to the addresses, if there are any, whatever the hosts are called.
    let is_address_here = config.get_hostaddrs().iter().all(std::net::IpAddr::is_loopback);
    if is_address_here && config.get_hosts().iter().all(is_here) {
        SslMode::Disable
    } else {
        SslMode::VerifyFull
    }
}

fn tls_config(mode: SslMode, root_certificate: Option<&str>) -> Result<Arc<ClientConfig>, PostgresError> {
    let provider = Arc::new(ring::default_provider());
    let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .map_err(|error| PostgresError::url(format!("setting up TLS: {error}")))?;
    let config = match mode {
        SslMode::VerifyFull => builder.with_root_certificates(roots(root_certificate)?).with_no_client_auth(),
        SslMode::VerifyCa => {
            let verifier = SignedByRoot { provider, roots: Some(roots(root_certificate)?) };
            builder.dangerous().with_custom_certificate_verifier(Arc::new(verifier)).with_no_client_auth()
        }
        SslMode::Disable | SslMode::Prefer | SslMode::Require => {
            let verifier = SignedByRoot { provider, roots: None };
            builder.dangerous().with_custom_certificate_verifier(Arc::new(verifier)).with_no_client_auth()
        }
    };
    Ok(Arc::new(config))
}

/// The certificates of a file, or those that the operating system trusts.
fn roots(file: Option<&str>) -> Result<RootCertStore, PostgresError> {
    let mut roots = RootCertStore::empty();
    match file {
        Some(path) => {
            let failed =
                |error: &dyn fmt::Display| PostgresError::url(format!("reading sslrootcert {path}: {error}"));
            for certificate in CertificateDer::pem_file_iter(path).map_err(|error| failed(&error))? {
                let certificate = certificate.map_err(|error| failed(&error))?;
                roots.add(certificate).map_err(|error| failed(&error))?;
            }
        }
        None => {
            roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        }
    }
    if roots.is_empty() {
        return Err(PostgresError::url(
            "there is no certificate to verify the server with: name a file with sslrootcert=PATH, or choose sslmode=require \
             to encrypt without verifying",
        ));
    }
    Ok(roots)
}

/// Accepts a certificate whatever name it is for: one that a root has signed, or any.
#[derive(Debug)]
struct SignedByRoot {
    provider: Arc<CryptoProvider>,
    roots: Option<RootCertStore>,
}

impl ServerCertVerifier for SignedByRoot {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        if let Some(roots) = &self.roots {
            let certificate = ParsedCertificate::try_from(certificate)?;
            let algorithms = self.provider.signature_verification_algorithms.all;
            verify_server_cert_signed_by_trust_anchor(&certificate, roots, intermediates, now, algorithms)?;
        }
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(
            message,
            certificate,
            signature,
            &self.provider.signature_verification_algorithms,
        )
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(
            message,
            certificate,
            signature,
            &self.provider.signature_verification_algorithms,
        )
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_elsewhere_must_show_who_they_are() {
        for url in [
            "postgres://localhost/db",
            "postgresql://u:p@127.0.0.1:5433/db",
            "postgres://h/db?sslmode=disable",
        ] {
            assert!(matches!(parse(url).unwrap().tls, TlsMode::Off), "{url}");
        }
        let config = |url: &str| url.parse::<Config>().unwrap();
        assert_eq!(default_mode(&config("postgres://db.example.org/db")), SslMode::VerifyFull);
        assert_eq!(default_mode(&config("postgres://localhost/db?hostaddr=10.0.0.1")), SslMode::VerifyFull);
        assert_eq!(default_mode(&config("postgres://localhost,db.example.org/db")), SslMode::VerifyFull);
    }

    #[test]
    fn parameters_of_the_driver_are_left_to_it() {
        let url = "postgres://u@localhost/db?application_name=orders&sslmode=disable&connect_timeout=3";
        assert_eq!(parse(url).unwrap().config.get_application_name(), Some("orders"));
    }

    #[test]
    fn what_is_not_understood_is_refused() {
        for url in [
            "",
            "sqlite:x",
            "postgres://",
            "postgres://localhost/db?sslmode=maybe",
            "postgres://localhost/db?colour=red",
            "postgres://localhost/db?hostaddr=127.0.0.1,127.0.0.2",
            "postgres://h/db?sslmode=verify-full&sslrootcert=/nowhere.pem",
        ] {
            assert!(parse(url).err().is_some_and(|error| error.is_url()), "{url}");
        }
    }
}
