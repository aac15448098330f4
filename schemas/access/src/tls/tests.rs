use std::io;

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, ServerConnection};
use types::ErrorKind;

use super::*;

struct Files {
    folder: tempfile::TempDir,
    authority: CertifiedIssuer<'static, KeyPair>,
}

impl Files {
    fn new() -> Files {
        let mut params = CertificateParams::new(Vec::<String>::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let authority = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
        Files { folder: tempfile::tempdir().unwrap(), authority }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// A certificate for `localhost` and its key, as PEM.
    fn signed(&self) -> (String, String) {
        let key = KeyPair::generate().unwrap();
        let certificate = CertificateParams::new(vec!["localhost".to_owned()]).unwrap().signed_by(&key, &self.authority).unwrap();
        (certificate.pem(), key.serialize_pem())
    }

    fn write(&self, name: &str, text: &str) {
        std::fs::write(self.path(name), text).unwrap();
    }

    fn files(&self, client_ca: bool) -> TlsFiles {
        TlsFiles { cert: self.path("cert"), key: self.path("key"), client_ca: client_ca.then(|| self.path("ca")) }
    }

    fn with_certificate(self) -> Files {
        let (cert, key) = self.signed();
        self.write("cert", &cert);
        self.write("key", &key);
        self.write("ca", &self.authority.pem());
        self
    }

    fn client(&self, own: Option<(String, String)>) -> ClientConfig {
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_slice(self.authority.pem().as_bytes()).unwrap()).unwrap();
        let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider())).with_safe_default_protocol_versions();
        let builder = builder.unwrap().with_root_certificates(roots);
        let mut config = match own {
            None => builder.with_no_client_auth(),
            Some((cert, key)) => {
                let chain = vec![CertificateDer::from_pem_slice(cert.as_bytes()).unwrap()];
                builder.with_client_auth_cert(chain, PrivateKeyDer::from_pem_slice(key.as_bytes()).unwrap()).unwrap()
            }
        };
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        config
    }
}

/// Lets both sides talk until neither has more to say.
fn shake_hands(client: ClientConfig, server: Arc<ServerConfig>) -> Result<(ClientConnection, ServerConnection), rustls::Error> {
    let mut client = ClientConnection::new(Arc::new(client), ServerName::try_from("localhost").unwrap())?;
    let mut server = ServerConnection::new(server)?;
    let carry = |bytes: &[u8], read: &mut dyn FnMut(&mut dyn io::Read) -> io::Result<usize>| {
        let mut rest = bytes;
        while !rest.is_empty() {
            read(&mut rest).unwrap();
        }
    };
    while client.wants_write() || server.wants_write() {
        let mut sent = Vec::new();
        while client.wants_write() {
            client.write_tls(&mut sent).unwrap();
        }
        carry(&sent, &mut |from| server.read_tls(from));
        server.process_new_packets()?;
        sent.clear();
        while server.wants_write() {
            server.write_tls(&mut sent).unwrap();
        }
        carry(&sent, &mut |from| client.read_tls(from));
        client.process_new_packets()?;
    }
    Ok((client, server))
}

#[test]
fn a_client_that_trusts_the_authority_connects() {
    let files = Files::new().with_certificate();
    let tls = ServerTls::load(files.files(false), &["http/1.1"]).unwrap();
    let (client, server) = shake_hands(files.client(None), tls.config()).unwrap();
    assert!(!client.is_handshaking() && !server.is_handshaking());
    assert_eq!(client.alpn_protocol(), Some(&b"http/1.1"[..]));
    assert_eq!(client.peer_certificates().unwrap()[0], tls.certificate());
    assert!(shake_hands(Files::new().client(None), tls.config()).is_err(), "of another authority");
}

#[test]
fn with_client_ca_a_client_needs_a_certificate_of_it() {
    let files = Files::new().with_certificate();
    let tls = ServerTls::load(files.files(true), &["http/1.1"]).unwrap();
    assert!(shake_hands(files.client(Some(files.signed())), tls.config()).is_ok());
    assert!(shake_hands(files.client(None), tls.config()).is_err());
    assert!(shake_hands(files.client(Some(Files::new().signed())), tls.config()).is_err());
}

#[test]
fn what_cannot_be_loaded_is_refused_with_the_setting_and_the_file() {
    let files = Files::new().with_certificate();
    let refused = |files: &Files| ServerTls::load(files.files(true), &[]).unwrap_err();
    for (name, setting) in [("cert", "serving.tls.cert"), ("key", "serving.tls.key"), ("ca", "serving.tls.client_ca")] {
        let good = std::fs::read_to_string(files.path(name)).unwrap();
        for wrong in [None, Some(""), Some("no PEM"), Some("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n")] {
            match wrong {
                None => std::fs::remove_file(files.path(name)).unwrap(),
                Some(text) => files.write(name, text),
            }
            let error = refused(&files);
            assert_eq!(error.kind(), ErrorKind::Input, "{error}");
            // A certificate that is none is found with its key at the latest.
            let is_named = error.fact("setting") == Some(setting) || (name == "cert" && error.fact("setting") == Some("serving.tls.key"));
            assert!(is_named, "{wrong:?}: {error}");
        }
        files.write(name, &good);
    }
    let (_, key_of_another) = files.signed();
    files.write("key", &key_of_another);
    assert!(refused(&files).to_string().contains("does not fit"), "{}", refused(&files));
}

#[test]
fn a_file_that_was_cut_off_is_refused_with_the_cause() {
    let cut_off = |pem: &str| pem.replace("-----END", "");
    let refused = |files: &Files| ServerTls::load(files.files(false), &[]).unwrap_err();
    let cause = |error: &Error| std::error::Error::source(error).map(ToString::to_string).unwrap_or_default();
    for name in ["cert", "key"] {
        let files = Files::new().with_certificate();
        files.write(name, &cut_off(&std::fs::read_to_string(files.path(name)).unwrap()));
        let error = refused(&files);
        assert!(error.message().starts_with("there is no ") && cause(&error).starts_with("missing section end"), "{name}: {error}");
    }
}

#[test]
fn changed_files_are_loaded_again_and_the_former_stay_while_they_cannot_be() {
    let files = Files::new().with_certificate();
    let tls = ServerTls::load(files.files(false), &["http/1.1"]).unwrap();
    let first = tls.certificate();
    assert!(!tls.reload().unwrap());

    let (cert, key) = files.signed();
    files.write("cert", &cert);
    // The key comes a moment later.
    assert!(tls.reload().is_err());
    assert_eq!(tls.certificate(), first);
    assert!(shake_hands(files.client(None), tls.config()).is_ok());

    files.write("key", &key);
    assert!(tls.reload().unwrap());
    let (client, _) = shake_hands(files.client(None), tls.config()).unwrap();
    assert_ne!(tls.certificate(), first);
    assert_eq!(client.peer_certificates().unwrap()[0], tls.certificate());
}

#[test]
fn certificates_in_the_wrong_order_are_refused_as_such() {
    let files = Files::new().with_certificate();
    let (cert, key) = files.signed();
    files.write("key", &key);
    files.write("cert", &format!("{cert}{}", files.authority.pem()));
    ServerTls::load(files.files(false), &["http/1.1"]).unwrap();
    files.write("cert", &format!("{}{cert}", files.authority.pem()));
    let error = ServerTls::load(files.files(false), &["http/1.1"]).unwrap_err();
    assert_eq!((error.message(), error.fact("setting")), ("the certificates are in the wrong order", Some("serving.tls.cert")), "{error}");
    files.write("key", &files.signed().1);
    let error = ServerTls::load(files.files(false), &["http/1.1"]).unwrap_err();
    assert_eq!(error.fact("setting"), Some("serving.tls.key"), "{error}");
}

#[test]
fn a_certificate_that_has_expired_is_loaded_and_is_an_outage() {
    let files = Files::new();
    let key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
    params.not_after = rcgen::date_time_ymd(2021, 1, 1);
    files.write("cert", &params.signed_by(&key, &files.authority).unwrap().pem());
    files.write("key", &key.serialize_pem());
    let tls = ServerTls::load(files.files(false), &["http/1.1"]).unwrap();
    let outage = tls.outage().unwrap();
    assert_eq!(outage.what, CERTIFICATE_EXPIRED);
    assert!(outage.error.contains("cert was valid until 2021-01-01 00:00:00 UTC"), "{outage:?}");
    let expires: DateTime<Utc> = "2021-01-01T00:00:00Z".parse().unwrap();
    let after = |seconds| tls.expired(expires + chrono::TimeDelta::seconds(seconds)).map(|outage| outage.lasting);
    assert_eq!([-1, 7].map(after), [None, Some(Duration::from_secs(7))]);
    let (cert, key) = files.signed();
    files.write("cert", &cert);
    files.write("key", &key);
    tls.note(&tls.reload());
    assert_eq!(tls.outage(), None);
}

#[test]
fn files_that_cannot_be_loaded_are_an_outage_until_they_can_be() {
    let files = Files::new().with_certificate();
    let tls = ServerTls::load(files.files(false), &["http/1.1"]).unwrap();
    let (cert, key) = files.signed();
    files.write("cert", &cert);
    tls.note(&tls.reload());
    let outage = tls.outage().unwrap();
    assert_eq!(outage.what, "the changed TLS files cannot be loaded");
    assert!(outage.error.contains("serving.tls.key"), "{outage:?}");
    files.write("key", &key);
    tls.note(&tls.reload());
    assert_eq!(tls.outage(), None);
}
