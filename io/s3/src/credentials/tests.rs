use std::sync::atomic::{AtomicU32, Ordering};

use super::*;

/// An agent whose credentials live for `life` seconds, by the paused clock of the runtime.
#[derive(Default)]
struct Agent {
    life: AtomicU32,
    away: AtomicU32,
    asked: AtomicU32,
}

fn renewing(agent: &Arc<Agent>) -> Renewing {
    let (began, wall) = (Instant::now(), SystemTime::now());
    let clock = move || wall + began.elapsed();
    let agent = Arc::clone(agent);
    let fetch = move || {
        let number = agent.asked.fetch_add(1, Ordering::SeqCst);
        let life = Duration::from_secs(agent.life.load(Ordering::SeqCst).into());
        let is_away = agent.away.load(Ordering::SeqCst) > 0;
        Box::pin(async move {
            tokio::time::sleep(Duration::from_millis(50)).await;
            let credential =
                AwsCredential { key_id: number.to_string(), secret_key: String::new(), token: None }.into();
            if is_away { Err("away".to_owned()) } else { Ok(Fetched { credential, expires: clock() + life }) }
        }) as Fetching
    };
    Renewing::new(fetch, clock)
}

async fn number(renewing: &Renewing) -> Result<u32, String> {
    let credential = renewing.get_credential().await.map_err(|error| error.to_string())?;
    Ok(credential.key_id.parse().unwrap())
}

/// What requests every quarter of a second get within `seconds`, and the longest one waited.
async fn requests(renewing: &Renewing, seconds: u64) -> (Vec<Result<u32, String>>, Duration) {
    let (mut got, mut longest) = (Vec::new(), Duration::ZERO);
    for _ in 0..seconds * 4 {
        let began = Instant::now();
        got.push(number(renewing).await);
        longest = longest.max(began.elapsed());
        tokio::time::sleep(Duration::from_millis(250)).await;
    }
    (got, longest)
}

fn agent(life: u32) -> Arc<Agent> {
    Arc::new(Agent { life: life.into(), ..Agent::default() })
}

// R-FLAG-4
#[tokio::test(start_paused = true)]
async fn no_request_waits_for_a_renewal_or_meets_expired_credentials() {
    let agent = agent(25);
    let renewing = renewing(&agent);
    assert_eq!(number(&renewing).await, Ok(0));
    let (got, longest) = requests(&renewing, 120).await;
    assert!(got.iter().all(Result::is_ok), "{got:?}");
    assert_eq!(longest, Duration::ZERO);
    assert!(got.last().unwrap().as_ref().unwrap() > &4, "they are not renewed: {:?}", got.last());
}

// R-FLAG-4
#[tokio::test(start_paused = true)]
async fn credentials_are_used_until_they_expire_while_the_agent_is_away() {
    let agent = agent(240);
    let renewing = renewing(&agent);
    assert_eq!(number(&renewing).await, Ok(0));
    agent.away.store(1, Ordering::SeqCst);
    let (got, longest) = requests(&renewing, 230).await;
    assert!(got.iter().all(|got| *got == Ok(0)), "{got:?}");
    assert_eq!(longest, Duration::ZERO);
    let asked = agent.asked.load(Ordering::SeqCst);
    assert!((5..40).contains(&asked), "asked {asked} times in 230 s");
    tokio::time::sleep(Duration::from_secs(20)).await;
    let error = number(&renewing).await.unwrap_err();
    assert!(error.contains("no credentials") && error.contains("away"), "{error}");
    agent.away.store(0, Ordering::SeqCst);
    tokio::time::sleep(PAUSE_MAX_WITHOUT).await;
    assert!(number(&renewing).await.is_ok(), "the agent is back");
}

#[tokio::test(start_paused = true)]
async fn long_lived_credentials_are_renewed_once_and_ahead_of_their_end() {
    let agent = agent(3600);
    let renewing = renewing(&agent);
    requests(&renewing, 3290).await;
    assert_eq!(agent.asked.load(Ordering::SeqCst), 1);
    let (got, _) = requests(&renewing, 60).await;
    assert_eq!((agent.asked.load(Ordering::SeqCst), got.last()), (2, Some(&Ok(1))));
}

#[tokio::test(start_paused = true)]
async fn requests_that_come_at_once_share_the_first_fetch_and_its_failure() {
    let agent = agent(60);
    agent.away.store(1, Ordering::SeqCst);
    let renewing = renewing(&agent);
    let got = futures::future::join_all((0..8).map(|_| number(&renewing))).await;
    assert!(got.iter().all(Result::is_err), "{got:?}");
    assert_eq!(agent.asked.load(Ordering::SeqCst), 1);
}

// R-FLAG-4
#[tokio::test(start_paused = true)]
async fn credentials_the_bucket_refused_are_renewed_before_their_time() {
    let agent = agent(3600);
    let renewing = renewing(&agent);
    assert_eq!(number(&renewing).await, Ok(0));
    tokio::time::sleep(Duration::from_secs(10)).await;
    renewing.refused();
    requests(&renewing, 2).await;
    assert_eq!(number(&renewing).await, Ok(1));
}

/// A service that answers each of `answers` to the request that begins with its first part.
async fn service(answers: &'static [(&'static str, &'static str)]) -> String {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move {
        for (wanted, answer) in answers {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut request = String::new();
            let parts: Vec<&str> = wanted.split('|').collect();
            // Until all that is waited for has come; a request without it hangs its test.
            while !parts.iter().all(|part| request.contains(part)) {
                let mut buffer = [0; 4096];
                let read = stream.read(&mut buffer).await.unwrap();
                assert!(read > 0, "{request}");
                request.push_str(&String::from_utf8_lossy(&buffer[..read]));
            }
            let head =
                format!("HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: {}\r\n\r\n", answer.len());
            stream.write_all(format!("{head}{answer}").as_bytes()).await.unwrap();
        }
    });
    url
}

const DOCUMENT: &str = r#"{"Code":"Success","AccessKeyId":"k","SecretAccessKey":"s","Token":"t","Expiration":"2099-01-01T00:00:00Z"}"#;

async fn fetched(source: Source) -> (String, String, Option<String>) {
    let fetched = source.fetch(&source.client().unwrap()).await.unwrap();
    let AwsCredential { key_id, secret_key, token } = fetched.credential.as_ref();
    assert!(fetched.expires > SystemTime::now());
    (key_id.clone(), secret_key.clone(), token.clone())
}

// R-FLAG-4
#[tokio::test]
async fn each_source_is_asked_the_way_it_expects() {
    let wanted = ("k".to_owned(), "s".to_owned(), Some("t".to_owned()));
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), "to+ken\n").unwrap();

    let url = service(&[("GET /creds |authorization: to+ken\r\n", DOCUMENT)]).await + "/creds";
    let token = ContainerToken::File(file.path().to_owned());
    assert_eq!(fetched(Source::Container { url, token }).await, wanted);

    let endpoint = service(&[
        ("PUT /latest/api/token |x-aws-ec2-metadata-token-ttl-seconds: ", "session"),
        ("GET /latest/meta-data/iam/security-credentials/ |x-aws-ec2-metadata-token: session\r\n", "role\n"),
        (
            "GET /latest/meta-data/iam/security-credentials/role |x-aws-ec2-metadata-token: session\r\n",
            DOCUMENT,
        ),
    ])
    .await;
    assert_eq!(fetched(Source::Instance { endpoint, falls_back: false }).await, wanted);

    let endpoint = service(&[(
        "POST / |Action=AssumeRoleWithWebIdentity|RoleArn=arn%3Ar|WebIdentityToken=to%2Bken",
        "<AssumeRoleWithWebIdentityResponse><AssumeRoleWithWebIdentityResult><Credentials>\
         <AccessKeyId>k</AccessKeyId><SecretAccessKey>s</SecretAccessKey><SessionToken>t</SessionToken>\
         <Expiration>2099-01-01T00:00:00Z</Expiration></Credentials></AssumeRoleWithWebIdentityResult>\
         </AssumeRoleWithWebIdentityResponse>",
    )])
    .await;
    let (token_file, role, session) = (file.path().to_owned(), "arn:r".to_owned(), "a".to_owned());
    assert_eq!(fetched(Source::WebIdentity { token_file, role, session, endpoint }).await, wanted);
}
