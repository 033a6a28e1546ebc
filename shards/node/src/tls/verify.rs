//! Who is let in at a handshake: a certificate by its fingerprint, and the proof that its key is there. Names, dates
//! and issuers in a certificate say nothing.

use std::{fmt, sync::Arc};

use arc_swap::ArcSwap;
use rustls::{
    CertificateError, DigitallySignedStruct, DistinguishedName, Error, PeerIncompatible, SignatureScheme,
    client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
    crypto::{CryptoProvider, verify_tls13_signature},
    pki_types::{CertificateDer, ServerName, UnixTime},
    server::danger::{ClientCertVerified, ClientCertVerifier},
};
use wasmkeep_protocol::{trust::Fingerprint, view::View};

use crate::cluster::moment;

/// Tells the other side that its certificate is not trusted, and nothing else: see `Session::was_refused`.
const NOT_TRUSTED: Error = Error::InvalidCertificate(CertificateError::ApplicationVerificationFailure);

/// TLS 1.2 is not spoken, so nobody asks.
const NO_TLS12: Error = Error::PeerIncompatible(PeerIncompatible::Tls12NotOffered);

/// Lets in any live node of the view.
pub(super) struct AnyNode {
    view: Arc<ArcSwap<View>>,
    provider: Arc<CryptoProvider>,
}

impl AnyNode {
    pub(super) fn new(view: Arc<ArcSwap<View>>, provider: Arc<CryptoProvider>) -> Self {
        Self { view, provider }
    }
}

/// Lets in whoever has one certificate: the one in the heartbeat of the node that is meant.
pub(super) struct OneNode {
    fingerprint: Fingerprint,
    provider: Arc<CryptoProvider>,
}

impl OneNode {
    pub(super) fn new(fingerprint: Fingerprint, provider: Arc<CryptoProvider>) -> Self {
        Self { fingerprint, provider }
    }
}

impl fmt::Debug for AnyNode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AnyNode").finish_non_exhaustive()
    }
}

impl fmt::Debug for OneNode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OneNode").field("fingerprint", &self.fingerprint).finish_non_exhaustive()
    }
}

impl ClientCertVerifier for AnyNode {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        certificate: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        match self.view.load().trusted(Fingerprint::of(certificate).as_str(), moment()) {
            Some(_) => Ok(ClientCertVerified::assertion()),
            None => Err(NOT_TRUSTED),
        }
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Err(NO_TLS12)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signature, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

impl ServerCertVerifier for OneNode {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        if Fingerprint::of(certificate) == self.fingerprint {
            Ok(ServerCertVerified::assertion())
        } else {
            Err(NOT_TRUSTED)
        }
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Err(NO_TLS12)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signature, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}
