//! A node played by the test: it has a heartbeat in the bucket, a certificate and a listener, and says and does what
//! the test wants. What makes a node is the bucket's word, so the real nodes take it for one.
#![allow(dead_code, reason = "each test file uses its own part")]

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use rcgen::{CertificateParams, KeyPair};
use rustls::{
    CertificateError, ClientConfig, ClientConnection, DigitallySignedStruct, DistinguishedName, Error,
    ServerConfig, ServerConnection, SignatureScheme, StreamOwned,
    client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
    crypto::{CryptoProvider, ring, verify_tls13_signature},
    pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer, ServerName, UnixTime},
    server::danger::{ClientCertVerified, ClientCertVerifier},
};
use wasmkeep_bucket::{Bucket as _, FileBucket, Outcome, Precondition};
use wasmkeep_protocol::{
    ActorId, object_keys,
    records::{Hold, NodeRecord, NodeState, Nonce, OwnerRecord, Presence, Process, Shape},
    trust::Fingerprint,
};

use crate::support::{
    PATIENCE,
    cluster::{Bucket, listener_address},
};

pub type Stream = StreamOwned<ClientConnection, TcpStream>;

/// A key and its certificate.
pub struct Keys {
    certificate: CertificateDer<'static>,
    key: PrivatePkcs8KeyDer<'static>,
}

impl Keys {
    pub fn new() -> Self {
        let pair = KeyPair::generate().unwrap();
        let made = CertificateParams::new(["stranger".to_owned()]).unwrap().self_signed(&pair).unwrap();
        Self { certificate: made.der().clone(), key: PrivatePkcs8KeyDer::from(pair.serialize_der()) }
    }

    fn key(&self) -> PrivateKeyDer<'static> {
        PrivateKeyDer::from(self.key.clone_key())
    }

    /// Connects with this certificate; the handshake is over, and the other side may still refuse it.
    pub fn connect(&self, to: SocketAddr) -> Stream {
        connect(to, Some(self))
    }
}

/// Connects to a cluster listener, whoever answers there.
pub fn connect(to: SocketAddr, keys: Option<&Keys>) -> Stream {
    let config = ClientConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .unwrap()
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(Anybody { refuses: None }));
    let config = match keys {
        Some(keys) => config.with_client_auth_cert(vec![keys.certificate.clone()], keys.key()).unwrap(),
        None => config.with_no_client_auth(),
    };
    let stream = TcpStream::connect(to).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let name = ServerName::try_from("anybody").unwrap();
    let connection = ClientConnection::new(Arc::new(config), name).unwrap();
    StreamOwned::new(connection, stream)
}

/// Sends a request and reads the whole answer, which has to be the last one.
pub fn ask(stream: &mut Stream, request: &str) -> std::io::Result<String> {
    stream.write_all(request.as_bytes())?;
    let mut answer = Vec::new();
    // A node closes without TLS's own goodbye when it is cut; what has come is enough here.
    let ended = stream.read_to_end(&mut answer);
    if answer.is_empty() {
        ended?;
    }
    Ok(String::from_utf8_lossy(&answer).into_owned())
}

/// What it does with a request, by its head; whether the connection goes on.
pub type Service = fn(&str, &mut dyn ReadWrite) -> bool;

pub trait ReadWrite: Read + Write {}
impl<T: Read + Write> ReadWrite for T {}

pub struct Puppet {
    bucket: FileBucket,
    id: &'static str,
    process: Process,
    pub keys: Keys,
    pub listener: SocketAddr,
    record: Mutex<NodeRecord>,
    /// Refuses every certificate.
    pub refuses: Arc<AtomicBool>,
    /// Takes connections and says nothing on them.
    pub mute: Arc<AtomicBool>,
    /// Connections taken and closed, handshakes refused, and requests read.
    pub accepted: Arc<AtomicU64>,
    pub closed: Arc<AtomicU64>,
    pub refused: Arc<AtomicU64>,
    pub requests: Arc<Mutex<Vec<String>>>,
}

impl Puppet {
    /// Writes its first heartbeat, and listens.
    pub fn new(bucket: &Bucket, id: &'static str, service: Service) -> Arc<Self> {
        let (keys, listener, process) = (Keys::new(), listener_address(), Process::from_bits(rand::random()));
        let presence = Presence {
            advertise: "http://127.0.0.1:1".into(),
            cluster_advertise: Some(format!("https://{listener}")),
            fingerprint: Some(Fingerprint::of(&keys.certificate).to_string()),
            version: "0.1.0".into(),
            ..Presence::default()
        };
        let record = NodeRecord {
            process,
            sequence: 0,
            nonce: Nonce::from_bits(0),
            state: NodeState::Live,
            written_at_ms: 0,
            ttl: Duration::from_secs(10),
            shape: Shape::NONE,
            presence: Arc::new(presence),
        };
        let puppet = Arc::new(Self {
            bucket: FileBucket::open(bucket.0.path()).unwrap(),
            id,
            process,
            keys,
            listener,
            record: Mutex::new(record),
            refuses: Arc::default(),
            mute: Arc::default(),
            accepted: Arc::default(),
            closed: Arc::default(),
            refused: Arc::default(),
            requests: Arc::default(),
        });
        puppet.beat();
        puppet.listen(service);
        puppet
    }

    /// Renews its lease.
    pub fn beat(&self) {
        self.write(|_| {});
    }

    /// Renews it, or whatever `change` makes of it.
    pub fn write(&self, change: impl FnOnce(&mut NodeRecord)) {
        let mut record = self.record.lock().unwrap();
        record.sequence += 1;
        record.nonce = Nonce::from_bits(rand::random());
        let elapsed = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
        record.written_at_ms = elapsed.as_millis().try_into().unwrap();
        change(&mut record);
        self.put(&object_keys::node(&self.id.parse().unwrap()), record.encode());
    }

    /// Renews the lease every second, as long as `going`.
    pub fn keep_beating(self: &Arc<Self>, going: &Arc<AtomicBool>) {
        let (puppet, going) = (Arc::clone(self), Arc::clone(going));
        std::thread::spawn(move || {
            while going.load(Ordering::Relaxed) {
                puppet.beat();
                std::thread::sleep(Duration::from_secs(1));
            }
        });
    }

    /// Takes an actor that nobody has.
    pub fn take(&self, class: &str, name: &str) {
        self.record_owner(class, name, Hold::Held);
    }

    /// Gives it up.
    pub fn release(&self, class: &str, name: &str) {
        self.record_owner(class, name, Hold::Released);
    }

    fn record_owner(&self, class: &str, name: &str, hold: Hold) {
        let actor = ActorId { class: class.parse().unwrap(), name: name.parse().unwrap() };
        let record = OwnerRecord {
            node: self.id.parse().unwrap(),
            process: self.process,
            generation: 1,
            hold,
            nonce: Nonce::from_bits(rand::random()),
        };
        self.put(&object_keys::owner(&"default".parse().unwrap(), &actor), record.encode());
    }

    /// Requests read whose head contains this.
    pub fn seen(&self, part: &str) -> usize {
        self.requests.lock().unwrap().iter().filter(|head| head.contains(part)).count()
    }

    /// Writes an object of the bucket, whatever is there.
    pub fn put_object(&self, key: &str, body: &[u8]) {
        self.put(key, body.to_vec());
    }

    fn put(&self, key: &str, body: Vec<u8>) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        let wrote =
            runtime.block_on(self.bucket.put(&key.parse().unwrap(), body.into(), &Precondition::None));
        assert!(matches!(wrote, Outcome::Written(_)), "{wrote:?}");
    }

    fn listen(self: &Arc<Self>, service: Service) {
        let listener = TcpListener::bind(self.listener).unwrap();
        let verifier = Arc::new(Anybody { refuses: Some(Arc::clone(&self.refuses)) });
        let config = ServerConfig::builder_with_provider(provider())
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_client_cert_verifier(verifier)
            .with_single_cert(vec![self.keys.certificate.clone()], self.keys.key())
            .unwrap();
        let config = Arc::new(config);
        let (refused, requests) = (Arc::clone(&self.refused), Arc::clone(&self.requests));
        let (mute, accepted) = (Arc::clone(&self.mute), Arc::clone(&self.accepted));
        let closed = Arc::clone(&self.closed);
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                accepted.fetch_add(1, Ordering::Relaxed);
                let (config, mute, closed) = (Arc::clone(&config), Arc::clone(&mute), Arc::clone(&closed));
                let (refused, requests) = (Arc::clone(&refused), Arc::clone(&requests));
                std::thread::spawn(move || {
                    let mut stream = stream.unwrap();
                    if mute.load(Ordering::Relaxed) {
                        std::thread::sleep(PATIENCE);
                        return;
                    }
                    let mut connection = ServerConnection::new(config).unwrap();
                    while connection.is_handshaking() {
                        if connection.complete_io(&mut stream).is_err() {
                            refused.fetch_add(1, Ordering::Relaxed);
                            return;
                        }
                    }
                    let mut stream = StreamOwned::new(connection, stream);
                    while let Some(head) = read_head(&mut stream) {
                        requests.lock().unwrap().push(head.clone());
                        if !service(&head, &mut stream) {
                            break;
                        }
                    }
                    drop(stream);
                    closed.fetch_add(1, Ordering::Relaxed);
                });
            }
        });
    }
}

/// The head of the next request; its body is read and forgotten.
fn read_head(stream: &mut (impl Read + Write)) -> Option<String> {
    let mut reader = BufReader::with_capacity(1, stream);
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        if reader.read_line(&mut head).ok()? == 0 {
            return None;
        }
    }
    let length =
        head.lines().find_map(|line| line.to_lowercase().strip_prefix("content-length: ")?.parse().ok());
    let mut body = vec![0; length.unwrap_or(0)];
    reader.read_exact(&mut body).ok()?;
    Some(head)
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(ring::default_provider())
}

/// Takes every certificate whose key is there, but while it refuses.
#[derive(Debug)]
struct Anybody {
    refuses: Option<Arc<AtomicBool>>,
}

impl Anybody {
    fn judge(&self) -> Result<(), Error> {
        match &self.refuses {
            Some(refuses) if refuses.load(Ordering::Relaxed) => {
                Err(Error::InvalidCertificate(CertificateError::ApplicationVerificationFailure))
            }
            _ => Ok(()),
        }
    }
}

impl ClientCertVerifier for Anybody {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        self.judge().map(|()| ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        panic!("TLS 1.2 was spoken")
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, certificate, signature, &provider().signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        provider().signature_verification_algorithms.supported_schemes()
    }
}

impl ServerCertVerifier for Anybody {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        panic!("TLS 1.2 was spoken")
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, certificate, signature, &provider().signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        provider().signature_verification_algorithms.supported_schemes()
    }
}
