//! The secret that calls between nodes are signed with: the first node of a cluster makes it (R-CALL-1).

use std::time::Duration;

use wasmkeep_bucket::Bucket;
use wasmkeep_protocol::{
    call_signature::{MalformedSecret, Secret},
    object_keys::CLUSTER_SECRET,
    records::RecordError,
    store::{Condition, Found},
};
use wasmkeep_runtime::Runtime;

use crate::store::{key, read, write};

/// Between two looks at a bucket that does not answer.
const AGAIN_AFTER: Duration = Duration::from_secs(1);

/// Reads the secret, or makes it. A bucket that does not answer is asked again, for as long as the caller waits.
///
/// # Errors
/// What is there is no secret: calls between nodes stop rather than go on with less (R-CALL-2).
pub async fn cluster_secret<B: Bucket, S: Runtime>(
    bucket: &B,
    runtime: &S,
    limit: Duration,
) -> Result<Secret, MalformedSecret> {
    let key = key(CLUSTER_SECRET);
    loop {
        let text = |bytes: &[u8]| Ok::<_, RecordError>(String::from_utf8_lossy(bytes).into_owned());
        match read(bucket, runtime, limit, &key, text).await {
            Found::Object(_, text) => return Secret::parse(&text.map_err(|_| MalformedSecret)?),
            // Whatever becomes of this write, the next read tells whose secret it is.
            Found::Absent => {
                let made: [u128; 2] = [runtime.random(), runtime.random()];
                let text = format!("{:032x}{:032x}", made[0], made[1]);
                write(bucket, runtime, limit, &key, text.into_bytes(), &Condition::Absent).await;
            }
            Found::Failed => runtime.sleep(AGAIN_AFTER).await,
        }
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use wasmkeep_bucket::Precondition;
    use wasmkeep_protocol::{
        ActorId, NodeId,
        call_signature::{Call, SeenNonces},
    };

    use super::*;
    use crate::kit::{Cable, Clock, run};

    const LIMIT: Duration = Duration::from_secs(3);

    // R-CALL-1
    #[test]
    fn nodes_that_start_together_have_one_secret() {
        run(async {
            let (clock, bucket) = (Clock::new(), Cable::new());
            let other = bucket.another();
            let (a, b) =
                futures::join!(cluster_secret(&bucket, &clock, LIMIT), cluster_secret(&other, &clock, LIMIT));
            let (node, actor): (NodeId, _) = ("b".parse().expect("a name"), |name: &str| ActorId {
                class: "c".parse().expect("a class"),
                name: name.parse().expect("a name"),
            });
            let (caller, chain) = (actor("x"), [actor("x")]);
            let call = Call {
                node: &node,
                method: "GET",
                path: "/",
                body: b"",
                caller: &caller,
                chain: &chain,
                timestamp_ms: 5,
                nonce: [7; 16],
            };
            let signature = a.expect("a secret").sign(&call);
            let accepted =
                b.expect("a secret").accept(&node, &call, &signature, 5, &mut SeenNonces::default());
            assert_eq!(accepted, Ok(()));
        });
    }

    // R-CALL-2
    #[test]
    fn a_malformed_secret_is_told_and_left_alone() {
        run(async {
            let (clock, bucket) = (Clock::new(), Cable::new());
            let bad = Bytes::from_static(b"not a secret");
            let _ = bucket.bucket.put(&key(CLUSTER_SECRET), bad.clone(), &Precondition::None).await;
            assert!(cluster_secret(&bucket, &clock, LIMIT).await.is_err());
            let there = bucket.bucket.get(&key(CLUSTER_SECRET), None).await.expect("there");
            assert_eq!(there.bytes(99).await, Ok(bad));
        });
    }
}
