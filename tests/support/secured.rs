//! A broker that asks who is there: encrypted listeners of several kinds, users, and rights that have to be given.

#![allow(clippy::allow_attributes, dead_code, reason = "no target uses all of it")]

use std::fmt::Write as _;
use std::fs;
use std::net::{Shutdown, TcpListener, TcpStream};
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use super::acls;
use super::broker::Broker;
use super::certificates::{Certificate, For};
use super::cluster::Cluster;
use super::rights::{Names, Right, table};

/// The broker, and the files that its clients need.
pub(crate) struct Secured {
    broker: Broker,
    folder: PathBuf,
}

/// How a listener is reached.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Listener {
    /// TLS and SASL: PLAIN, SCRAM, OAUTHBEARER.
    Sasl,
    /// TLS, with a certificate of the client.
    Mutual,
    /// TLS with a certificate that has expired.
    Expired,
    /// Nothing; whoever comes may do everything.
    Plaintext,
    /// TLS alone; whoever comes may do everything.
    Tls,
}

/// A user's name; in certificates `CN=` is in front of it.
pub(crate) const USER: &str = "tidegate";

/// The user's password, that of its key, and the secret of its client at the token endpoint.
pub(crate) const SECRET: &str = "hush-Xq7-hush";

/// So many users `right0`, `right1` and so on have the same password.
pub(crate) const USERS_OF_RIGHTS: usize = 24;

impl Secured {
    /// One that the tests of this process share.
    pub(crate) fn shared() -> &'static Self {
        static SHARED: OnceLock<Secured> = OnceLock::new();
        SHARED.get_or_init(Self::start)
    }

    fn start() -> Self {
        let authority = Certificate::authority("authority");
        let stranger = Certificate::authority("stranger");
        let server = authority.sign("broker", &For::Server("127.0.0.1"), 0, 10);
        let expired = authority.sign("broker", &For::Server("127.0.0.1"), -10, -1);
        let mut users = format!("user_{USER}=\"{SECRET}\"");
        for nth in 0..USERS_OF_RIGHTS {
            write!(users, " user_right{nth}=\"{SECRET}\"").unwrap();
        }
        let plain = format!("{MODULES}.plain.PlainLoginModule required {users};");
        let scram = format!("{MODULES}.scram.ScramLoginModule required;");
        let oauth = format!(
            "{MODULES}.oauthbearer.OAuthBearerLoginModule required unsecuredLoginStringClaim_sub=\"broker\";"
        );
        let line = |text: String| text.replace('\n', "\\n");
        let (keys, chain) = (line(server.key_pem()), line(server.pem()));
        let (old_keys, old_chain) = (line(expired.key_pem()), line(expired.pem()));
        let trusted = line(authority.pem());
        let properties = [
            (
                "listeners",
                "SASL_SSL://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller},MUTUAL://127.0.0.1:{third},\
                 EXPIRED://127.0.0.1:{fourth},PLAINTEXT://127.0.0.1:{fifth},TLS://127.0.0.1:{sixth}",
            ),
            (
                "listener.security.protocol.map",
                "SASL_SSL:SASL_SSL,CONTROLLER:PLAINTEXT,MUTUAL:SSL,EXPIRED:SSL,PLAINTEXT:PLAINTEXT,TLS:SSL",
            ),
            ("inter.broker.listener.name", "PLAINTEXT"),
            ("sasl.enabled.mechanisms", "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512,OAUTHBEARER"),
            ("listener.name.sasl_ssl.plain.sasl.jaas.config", &plain),
            ("listener.name.sasl_ssl.scram-sha-256.sasl.jaas.config", &scram),
            ("listener.name.sasl_ssl.scram-sha-512.sasl.jaas.config", &scram),
            ("listener.name.sasl_ssl.oauthbearer.sasl.jaas.config", &oauth),
            // A session lasts no longer than its token.
            ("listener.name.sasl_ssl.oauthbearer.connections.max.reauth.ms", "60000"),
            ("ssl.keystore.type", "PEM"),
            ("ssl.keystore.key", &keys),
            ("ssl.keystore.certificate.chain", &chain),
            ("ssl.truststore.type", "PEM"),
            ("ssl.truststore.certificates", &trusted),
            ("listener.name.mutual.ssl.client.auth", "required"),
            ("listener.name.expired.ssl.keystore.type", "PEM"),
            ("listener.name.expired.ssl.keystore.key", &old_keys),
            ("listener.name.expired.ssl.keystore.certificate.chain", &old_chain),
            ("authorizer.class.name", "org.apache.kafka.metadata.authorizer.StandardAuthorizer"),
            ("super.users", "User:ANONYMOUS"),
        ];
        let scram = |bits| format!("SCRAM-SHA-{bits}=[name={USER},password={SECRET}]");
        let broker = Broker::start_with_users(&properties, &[scram(256), scram(512)]);

        let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR"))
            .join(concat!("secured-", env!("CARGO_CRATE_NAME")));
        fs::create_dir_all(&folder).unwrap();
        let secured = Self { broker, folder };
        let client = authority.sign(USER, &For::Client, 0, 10);
        let old = authority.sign(USER, &For::Client, -10, -1);
        let strange = stranger.sign(USER, &For::Client, 0, 10);
        for (name, text) in [
            ("ca-certificates.crt", authority.pem()),
            ("stranger.crt", stranger.pem()),
            ("tidegate.crt", client.pem()),
            ("tidegate.key", client.key_pem()),
            ("old.crt", old.pem()),
            ("old.key", old.key_pem()),
            ("strange.crt", strange.pem()),
            ("strange.key", strange.key_pem()),
            ("kafka-password", format!("{SECRET}\n")),
            ("oauth-client", format!("{SECRET}\n")),
        ] {
            fs::write(secured.file(name), text).unwrap();
        }
        secured
    }

    /// The path of a file.
    pub(crate) fn file(&self, name: &str) -> String {
        self.folder.join(name).display().to_string()
    }

    /// The address of a listener.
    pub(crate) fn at(&self, listener: Listener) -> String {
        match listener {
            Listener::Sasl => self.broker.bootstrap(),
            Listener::Mutual => self.broker.at(2),
            Listener::Expired => self.broker.at(3),
            Listener::Plaintext => self.broker.at(4),
            Listener::Tls => self.broker.at(5),
        }
    }

    /// A client that may do everything.
    pub(crate) fn cluster(&self) -> Cluster {
        Cluster::new(self.at(Listener::Plaintext))
    }

    /// Gives principals rights.
    pub(crate) fn grant(&self, grants: &[(String, Right)]) {
        acls::grant(&self.cluster().producer(), grants);
    }

    /// Gives a principal all rights that the job of this prefix needs, and that are good to have.
    pub(crate) fn grant_all(&self, principal: &str, prefix: &str) {
        let rows = table(&names(prefix).each());
        let grants = rows.into_iter().map(|row| (format!("User:{principal}"), row.right));
        self.grant(&grants.collect::<Vec<_>>());
    }

    /// The text of `config/security/NAME.toml` with the addresses and files of this broker.
    pub(crate) fn example(&self, name: &str, listener: Listener) -> String {
        let path = format!("{}/config/security/{name}.toml", env!("CARGO_MANIFEST_DIR"));
        let text = fs::read_to_string(path).unwrap();
        let text = text.replace("kafka.example.com:9093", &self.at(listener));
        let folder = format!("{}/", self.folder.display());
        text.replace("/etc/ssl/certs/", &folder).replace("/run/secrets/", &folder)
    }
}

/// What the job of [`super::ledger::config`] calls its topics.
pub(crate) struct Prefixed([String; 6]);

pub(crate) fn names(prefix: &str) -> Prefixed {
    Prefixed(["", "-in", "-out", "-late", "-dead", "-export"].map(|end| format!("{prefix}{end}")))
}

impl Prefixed {
    pub(crate) fn each(&self) -> Names<'_> {
        let [group, input, results, late, dead, export] = &self.0;
        Names { group, input, results, late, dead, export }
    }
}

/// Passes connections on to an address, and counts them.
pub(crate) struct Counted {
    port: u16,
    count: Arc<AtomicUsize>,
}

impl Counted {
    pub(crate) fn to(address: String) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let count = Arc::new(AtomicUsize::new(0));
        let counter = Arc::clone(&count);
        // It ends with the test process.
        std::thread::spawn(move || {
            for near in listener.incoming().map_while(Result::ok) {
                counter.fetch_add(1, Ordering::Relaxed);
                let Ok(far) = TcpStream::connect(&address) else { continue };
                for (mut from, mut to) in
                    [(near.try_clone().unwrap(), far.try_clone().unwrap()), (far, near)]
                {
                    std::thread::spawn(move || {
                        // Whoever hangs up does so towards both.
                        drop(std::io::copy(&mut from, &mut to));
                        drop((from.shutdown(Shutdown::Both), to.shutdown(Shutdown::Both)));
                    });
                }
            }
        });
        Self { port, count }
    }

    /// Where it listens, under this name.
    pub(crate) fn at(&self, host: &str) -> String {
        format!("{host}:{}", self.port)
    }

    pub(crate) fn count(&self) -> usize {
        self.count.load(Ordering::Relaxed)
    }
}

const MODULES: &str = "org.apache.kafka.common.security";
