//! The key and the certificate of this process: made at its start, in memory alone, gone with it.

use std::sync::Arc;

use arc_swap::ArcSwap;
use rcgen::{CertificateParams, KeyPair};
use rustls::{
    ClientConfig, ServerConfig,
    client::Resumption,
    crypto::{CryptoProvider, ring},
    pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer},
    server::NoServerSessionStorage,
    version::TLS13,
};
use wasmkeep_protocol::{trust::Fingerprint, view::View};

use super::verify::{AnyNode, OneNode};

/// In every certificate and every hello. It says nothing: the fingerprint does.
pub(super) const NAME: &str = "wasmkeep";

/// Why there is no certificate. One sentence.
#[derive(Debug, thiserror::Error)]
pub enum IdentityError {
    /// Making the key or the certificate.
    #[error("this node's certificate cannot be made: {0}")]
    Certificate(#[from] rcgen::Error),
    /// Setting TLS up with it.
    #[error("TLS between nodes cannot be set up: {0}")]
    Tls(#[from] rustls::Error),
}

/// This process, to other nodes.
pub(crate) struct Identity {
    fingerprint: Fingerprint,
    certificate: CertificateDer<'static>,
    key: PrivatePkcs8KeyDer<'static>,
    provider: Arc<CryptoProvider>,
    server: Arc<ServerConfig>,
}

impl Identity {
    /// A new key. Peers are judged by `view` as it is when they come.
    pub(crate) fn new(view: Arc<ArcSwap<View>>) -> Result<Self, IdentityError> {
        let pair = KeyPair::generate()?;
        let certificate: CertificateDer<'static> =
            CertificateParams::new([NAME.to_owned()])?.self_signed(&pair)?.der().clone();
        let key = PrivatePkcs8KeyDer::from(pair.serialize_der());
        let provider = Arc::new(ring::default_provider());
        let verifier = Arc::new(AnyNode::new(view, Arc::clone(&provider)));
        let mut server = ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_protocol_versions(&[&TLS13])?
            .with_client_cert_verifier(verifier)
            .with_single_cert(vec![certificate.clone()], PrivateKeyDer::from(key.clone_key()))?;
        // A resumed session would skip the certificate, and with it the question whether it is still trusted.
        server.session_storage = Arc::new(NoServerSessionStorage {});
        server.send_tls13_tickets = 0;
        let fingerprint = Fingerprint::of(&certificate);
        Ok(Self { fingerprint, certificate, key, provider, server: Arc::new(server) })
    }

    /// What the heartbeat says of the certificate.
    pub(crate) fn fingerprint(&self) -> &Fingerprint {
        &self.fingerprint
    }

    /// For connections from other nodes.
    pub(super) fn server(&self) -> Arc<ServerConfig> {
        Arc::clone(&self.server)
    }

    /// For a connection to whoever has this certificate.
    pub(super) fn client(&self, fingerprint: &Fingerprint) -> Result<Arc<ClientConfig>, rustls::Error> {
        let verifier = Arc::new(OneNode::new(fingerprint.clone(), Arc::clone(&self.provider)));
        let mut client = ClientConfig::builder_with_provider(Arc::clone(&self.provider))
            .with_protocol_versions(&[&TLS13])?
            .dangerous()
            .with_custom_certificate_verifier(verifier)
            .with_client_auth_cert(
                vec![self.certificate.clone()],
                PrivateKeyDer::from(self.key.clone_key()),
            )?;
        client.resumption = Resumption::disabled();
        client.enable_sni = false;
        Ok(Arc::new(client))
    }
}
