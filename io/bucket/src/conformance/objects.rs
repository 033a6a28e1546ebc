//! Promises about single objects.

use bytes::Bytes;

use super::{Breach, Run, promise};
use crate::outcome::{Failure, Precondition, ReadError};
use crate::{Bucket, KEY_BYTES_MAX, Key};

/// A body of several chunks on every backend, in bytes.
const LARGE_BYTES: usize = 3 << 20;

pub(super) async fn round_trip<B: Bucket>(run: &Run<'_, B>) -> Result<(), Breach> {
    let kept = async {
        let large: Bytes = (0..LARGE_BYTES).map(|n| (n % 251) as u8).collect();
        for (name, body) in
            [("empty", Bytes::new()), ("small", Bytes::from_static(b"\0\xff\r\n")), ("large", large)]
        {
            let key = run.key(name)?;
            let put = run.bucket.put(&key, body.clone(), &Precondition::None).await;
            let crate::Outcome::Written(version) = put else { return Err(format!("{put:?} for {key}")) };
            let head = run.bucket.head(&key).await.map_err(|error| error.to_string())?;
            let object = run.bucket.get(&key, None).await.map_err(|error| error.to_string())?;
            let meta = object.meta.clone();
            let read = object.bytes(LARGE_BYTES as u64).await.map_err(|error| error.to_string())?;
            if read != body || meta != head || head.version != version || head.size != body.len() as u64 {
                return Err(format!(
                    "{key}: wrote {version}, head {head:?}, get {meta:?}, {} bytes",
                    read.len()
                ));
            }
        }
        Ok(())
    };
    promise("a body, its size and its version read back as they were written", kept.await)
}

pub(super) async fn ranges<B: Bucket>(run: &Run<'_, B>) -> Result<(), Breach> {
    let kept = async {
        let key = run.key("range")?;
        run.written(&key, "0123456789", &Precondition::None).await?;
        for (range, expected) in
            [(0..1, "0"), (3..7, "3456"), (9..10, "9"), (8..99, "89"), (0..10, "0123456789")]
        {
            let object =
                run.bucket.get(&key, Some(range.clone())).await.map_err(|error| error.to_string())?;
            let size = object.meta.size;
            let read = object.bytes(10).await.map_err(|error| error.to_string())?;
            if read != expected || size != 10 {
                return Err(format!("{read:?} of {size} bytes for {range:?}"));
            }
        }
        match run.bucket.get(&key, Some(10..11)).await {
            Err(ReadError::Failed(Failure::Refused(_))) => Ok(()),
            other => Err(format!("{other:?} for a range past the end")),
        }
    };
    promise("a range gives exactly those bytes, clipped at the end, and none past it", kept.await)
}

pub(super) async fn replacing<B: Bucket>(run: &Run<'_, B>) -> Result<(), Breach> {
    let kept = async {
        let key = run.key("replaced")?;
        let mut versions = Vec::new();
        for n in 0..8 {
            let version = run.written(&key, &format!("body {n}"), &Precondition::None).await?;
            run.stands(&key, Some(&format!("body {n}"))).await?;
            if versions.contains(&version) {
                return Err(format!("{version} came twice for different bodies"));
            }
            versions.push(version);
        }
        Ok(())
    };
    promise("a read after a write sees it, and every different body has its own version", kept.await)
}

pub(super) async fn removing<B: Bucket>(run: &Run<'_, B>) -> Result<(), Breach> {
    let kept = async {
        let key = run.key("removed")?;
        run.bucket.delete(&key).await.map_err(|error| error.to_string())?;
        run.written(&key, "x", &Precondition::None).await?;
        run.bucket.delete(&key).await.map_err(|error| error.to_string())?;
        run.stands(&key, None).await?;
        match run.bucket.head(&key).await {
            Err(ReadError::NotFound) => run.bucket.delete(&key).await.map_err(|error| error.to_string()),
            other => Err(format!("{other:?} for a removed object")),
        }
    };
    promise("a removed object is gone, and removing what is not there succeeds", kept.await)
}

pub(super) async fn odd_keys<B: Bucket>(run: &Run<'_, B>) -> Result<(), Breach> {
    let kept = async {
        let room = KEY_BYTES_MAX - run.root.len() - 1;
        let mut keys: Vec<Key> = Vec::new();
        for name in [
            "odd",
            "odd/below",
            "odd/%2F",
            "odd/%252F",
            "odd/+",
            "odd/a=b,c@d~e",
            "odd/..x",
            "odd/A",
            "odd/a",
        ] {
            keys.push(run.key(name)?);
        }
        // The longest key there is, in short segments.
        keys.push(run.key(&format!("deep/{}", "a/".repeat((room - 6) / 2) + "b"))?);
        each_its_own(run, &keys).await
    };
    promise("every key names its own object, whatever its characters and its length", kept.await)
}

pub(super) async fn long_segments<B: Bucket>(run: &Run<'_, B>) -> Result<(), Breach> {
    let kept = async {
        // Around the 255 bytes that a file name may have.
        let lengths = [254, 255, 256, 300, 600];
        let keys = lengths.map(|length| run.key(&format!("long/{}", "s".repeat(length))));
        each_its_own(run, &keys.into_iter().collect::<Result<Vec<_>, _>>()?).await
    };
    promise("a segment of a key may be longer than a file name", kept.await)
}

async fn each_its_own<B: Bucket>(run: &Run<'_, B>, keys: &[Key]) -> Result<(), String> {
    for key in keys {
        run.written(key, key.as_str(), &Precondition::Absent).await?;
    }
    for key in keys {
        run.stands(key, Some(key.as_str())).await?;
    }
    Ok(())
}
