//! Where an actor runs inside a node: a stable hash of its identity picks the shard.

use xxhash_rust::xxh3::Xxh3;

/// Stable over processes, machines and versions: XXH3-64 of `class`, a zero byte, `name`.
#[must_use]
pub fn actor_hash(class: &str, name: &str) -> u64 {
    let mut hasher = Xxh3::new();
    hasher.update(class.as_bytes());
    hasher.update(&[0]);
    hasher.update(name.as_bytes());
    hasher.digest()
}

/// The shard, of `shards`, that owns the actor with this hash. `shards` is at least 1.
#[must_use]
pub fn shard_of(hash: u64, shards: usize) -> usize {
    // Multiply-shift instead of modulo: uses the high bits, which XXH3 mixes best.
    ((u128::from(hash) * shards as u128) >> 64) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hash_of_an_identity_never_changes() {
        assert_eq!(actor_hash("counter", "alice"), actor_hash("counter", "alice"));
        assert_ne!(actor_hash("a", "bc"), actor_hash("ab", "c"), "class and name are kept apart");
        assert_eq!(actor_hash("counter", "alice"), 16_812_465_281_443_751_297, "pinned value");
    }

    #[test]
    fn actors_spread_evenly_over_shards() {
        for shards in [1, 2, 3, 7, 64] {
            let mut counts = vec![0_u32; shards];
            for n in 0..64_000 {
                counts[shard_of(actor_hash("counter", &format!("a{n}")), shards)] += 1;
            }
            let mean = 64_000 / shards as u32;
            assert!(counts.iter().all(|&c| c > mean * 8 / 10 && c < mean * 12 / 10), "{shards}: {counts:?}");
        }
    }
}
