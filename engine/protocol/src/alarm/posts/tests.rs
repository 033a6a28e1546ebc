use proptest::prelude::*;

use super::*;

fn node() -> NodeId {
    "a".parse().unwrap()
}

fn post(due_ms: u64, generation: u64, txid: u64) -> Post {
    Post { due_ms, generation, txid, node: node() }
}

fn at(at_ms: u64) -> Outlook {
    Outlook::exact(Some(at_ms))
}

/// Carries a commit to its end.
fn commit(posts: &mut Posts, txid: u64, outlook: Outlook) -> Option<Post> {
    let put = posts.before(txid, outlook);
    put.iter().cloned().for_each(|put| posts.posted(put));
    posts.landed(txid, outlook);
    put
}

/// Carries out everything there is to tidy; what was found of others' is `others`.
fn tidy(posts: &mut Posts, others: &[Post]) -> Vec<Tidy> {
    let mut done = Vec::new();
    while let Some(tidy) = posts.tidy() {
        done.push(tidy.clone());
        match tidy {
            Tidy::Put(post) => posts.posted(post),
            Tidy::Find(_) => posts.found(others.iter().cloned()),
            Tidy::Delete(post) => {
                posts.leaving(&post);
                posts.gone(&post);
            }
        }
        assert!(done.len() < 20, "{done:?}");
    }
    done
}

// R-ALM-1, case A1
#[test]
fn an_earlier_alarm_is_put_before_its_commit_and_a_later_one_after_it() {
    let mut posts = Posts::new(node(), 1);
    assert_eq!(commit(&mut posts, 1, at(50)), Some(post(50, 1, 1)));
    assert_eq!(tidy(&mut posts, &[]), []);
    assert_eq!(commit(&mut posts, 2, at(50)), None, "the same again costs nothing");
    assert_eq!(tidy(&mut posts, &[]), []);
    assert_eq!(commit(&mut posts, 3, at(90)), None, "the earlier one covers it");
    assert_eq!(tidy(&mut posts, &[]), [Tidy::Put(post(90, 1, 3)), Tidy::Delete(post(50, 1, 1))]);
    assert_eq!(commit(&mut posts, 4, at(70)), Some(post(70, 1, 4)));
    assert_eq!(tidy(&mut posts, &[]), [Tidy::Delete(post(90, 1, 3))]);
    assert_eq!(commit(&mut posts, 5, Outlook::exact(None)), None);
    assert_eq!(tidy(&mut posts, &[]), [Tidy::Delete(post(70, 1, 4))]);
    assert!(posts.is_empty());
    assert_eq!(commit(&mut posts, 6, Outlook::exact(None)), None, "without an alarm nothing is written");
    assert_eq!(tidy(&mut posts, &[]), []);
}

// R-ALM-1, case A1
#[test]
fn nothing_a_commit_on_its_way_needs_is_deleted() {
    let mut posts = Posts::new(node(), 1);
    commit(&mut posts, 1, at(50));
    assert_eq!(posts.before(2, Outlook::exact(None)), None);
    assert_eq!(posts.tidy(), None, "the clearing has not landed");
    posts.landed(2, Outlook::exact(None));
    assert_eq!(posts.before(3, at(60)), None, "what is there still covers it");
    assert_eq!(posts.tidy(), None);
    posts.landed(3, at(60));
    assert_eq!(tidy(&mut posts, &[]), [Tidy::Put(post(60, 1, 3)), Tidy::Delete(post(50, 1, 1))]);
    let deleting = posts.before(4, Outlook::exact(None));
    posts.landed(4, Outlook::exact(None));
    assert_eq!((deleting, posts.tidy()), (None, Some(Tidy::Delete(post(60, 1, 3)))));
    posts.leaving(&post(60, 1, 3));
    assert_eq!(posts.before(5, at(60)), Some(post(60, 1, 5)), "one that is being deleted covers nothing");
    posts.posted(post(60, 1, 5));
    posts.landed(5, at(60));
    assert_eq!(posts.tidy(), Some(Tidy::Delete(post(60, 1, 3))), "until it is known to be gone");
}

// R-ALM-1
#[test]
fn what_was_committed_and_is_not_known_is_covered_at_its_earliest() {
    let mut posts = Posts::new(node(), 1);
    assert_eq!(commit(&mut posts, 1, Outlook::not_before(Some(40))), Some(post(40, 1, 1)));
    assert_eq!(posts.tidy(), None);
    posts.settled(2, None);
    assert_eq!(posts.tidy(), None, "of another state");
    posts.settled(1, Some(70));
    assert_eq!(tidy(&mut posts, &[]), [Tidy::Put(post(70, 1, 1)), Tidy::Delete(post(40, 1, 1))]);
    let unclear = Outlook::not_before(Some(70));
    assert_eq!(posts.before(2, unclear), None);
    posts.settled(2, None);
    assert_eq!(posts.tidy(), None, "it has not landed");
    posts.landed(2, unclear);
    assert_eq!(tidy(&mut posts, &[]), [Tidy::Delete(post(70, 1, 1))]);
}

// R-ALM-1
#[test]
fn the_next_owner_relies_on_what_it_has_not_seen_and_clears_it_away_once_it_need_not() {
    let opened = || Posts::opened(None, node(), 5, 9, Some(50));
    let mut posts = opened();
    assert_eq!(posts.tidy(), None, "an alarm that does not change costs nothing");
    assert_eq!(commit(&mut posts, 10, at(50)), None);
    assert_eq!(posts.tidy(), None);
    assert_eq!(commit(&mut posts, 11, at(80)), None);
    let theirs = [post(50, 4, 9), post(50, 6, 1)];
    let expected = [Tidy::Put(post(80, 5, 11)), Tidy::Find(50), Tidy::Delete(post(50, 4, 9))];
    assert_eq!(tidy(&mut posts, &theirs), expected, "never one of a later hold");
    let ours = [post(50, 5, 12)];
    posts.noticed(ours[0].clone());
    assert_eq!(tidy(&mut posts, &[]), [], "nor one that this hold put after the actor was deleted");

    let mut posts = opened();
    assert_eq!(commit(&mut posts, 10, at(30)), Some(post(30, 5, 10)));
    assert_eq!(tidy(&mut posts, &[]), [Tidy::Find(50)]);

    let mut posts = opened();
    commit(&mut posts, 10, Outlook::exact(None));
    assert_eq!(tidy(&mut posts, &theirs[..1]), [Tidy::Find(50), Tidy::Delete(post(50, 4, 9))]);
}

// R-ALM-1
#[test]
fn this_node_knows_its_own_entries_again_unless_another_had_the_actor_meanwhile() {
    let mut posts = Posts::new(node(), 1);
    commit(&mut posts, 1, at(50));
    let mut next = Posts::opened(Some(posts.clone()), node(), 2, 1, Some(50));
    commit(&mut next, 2, Outlook::exact(None));
    assert_eq!(tidy(&mut next, &[]), [Tidy::Delete(post(50, 1, 1))]);
    let mut later = Posts::opened(Some(posts), node(), 3, 1, Some(50));
    commit(&mut later, 2, Outlook::exact(None));
    assert_eq!(tidy(&mut later, &[]), [Tidy::Find(50)]);
}

// R-ALM-1
#[test]
fn an_entry_a_sweep_came_across_is_deleted_only_behind_one_that_is_known() {
    let mut posts = Posts::opened(None, node(), 5, 9, Some(50));
    posts.noticed(post(50, 4, 9));
    assert_eq!(posts.tidy(), None, "the one that is relied on");
    posts.noticed(post(20, 3, 7));
    let theirs = [post(50, 4, 9)];
    let expected = [
        Tidy::Put(post(50, 5, 9)),
        Tidy::Delete(post(20, 3, 7)),
        Tidy::Find(50),
        Tidy::Delete(post(50, 4, 9)),
    ];
    assert_eq!(tidy(&mut posts, &theirs), expected);

    let mut posts = Posts::opened(None, node(), 5, 9, None);
    posts.noticed(post(20, 3, 7));
    posts.noticed(post(20, 6, 7));
    assert_eq!(tidy(&mut posts, &[]), [Tidy::Delete(post(20, 3, 7))], "never one of a later hold");
}

/// A bucket, an actor's holds one after the other, and requests that are carried out late.
struct Model {
    dice: u64,
    bucket: BTreeSet<Post>,
    /// What the bucket calls the latest: its hold, its transaction, and its alarm.
    latest: (u64, u64, Option<u64>),
    /// Requests that were given up and may still be carried out.
    late: Vec<Late>,
    generation: u64,
}

#[derive(Clone)]
enum Late {
    Put(Post),
    Delete(Post),
}

impl Model {
    fn below(&mut self, most: u64) -> u64 {
        self.dice = self.dice.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.dice >> 33) % most
    }

    fn check(&self, what: &str) {
        let (generation, txid, at_ms) = self.latest;
        let Some(at_ms) = at_ms else { return };
        let covered = self.bucket.iter().any(|post| post.due_ms <= at_ms);
        assert!(covered, "{what}: {at_ms} of {generation}-{txid} is not covered by {:?}", self.bucket);
    }

    /// Whether the request is carried out, and whether it is answered.
    fn send(&mut self, request: Late) -> bool {
        match self.below(8) {
            0 => {
                self.late.push(request);
                false
            }
            1 => {
                self.carry_out(request);
                false
            }
            _ => {
                self.carry_out(request);
                true
            }
        }
    }

    fn carry_out(&mut self, request: Late) {
        match request {
            Late::Put(post) => drop(self.bucket.insert(post)),
            Late::Delete(post) => drop(self.bucket.remove(&post)),
        }
        self.check("after a request");
    }

    fn lateness(&mut self) {
        if !self.late.is_empty() && self.below(3) == 0 {
            let at = self.below(self.late.len() as u64) as usize;
            let request = self.late.swap_remove(at);
            self.carry_out(request);
        }
    }

    fn alarm(&mut self) -> Option<u64> {
        (self.below(4) > 0).then(|| self.below(5) * 10)
    }

    /// Sends a commit. False: the hold is given up.
    fn commit(&mut self, posts: &mut Posts, txid: u64) -> bool {
        let at_ms = self.alarm();
        let outlook = match self.below(5) {
            0 => Outlook::not_before(at_ms.into_iter().chain(self.alarm()).min()),
            _ => Outlook::exact(at_ms),
        };
        if let Some(post) = posts.before(txid, outlook) {
            if !self.send(Late::Put(post.clone())) {
                return false;
            }
            posts.posted(post);
        }
        if self.below(3) == 0 {
            self.tidy(posts, 2);
        }
        let (lands, answered) = (self.below(10) > 0, self.below(10) > 0);
        if lands {
            self.latest = (posts.generation, txid, at_ms);
            self.check("after a commit");
        }
        if !lands || !answered {
            return false;
        }
        if self.below(4) == 0 {
            posts.settled(txid, at_ms);
        }
        posts.landed(txid, outlook);
        if self.below(2) == 0 {
            posts.settled(txid, at_ms);
        }
        true
    }

    fn tidy(&mut self, posts: &mut Posts, most: u64) {
        for _ in 0..self.below(most + 1) {
            self.lateness();
            match posts.tidy() {
                None => return,
                Some(Tidy::Put(post)) => {
                    if !self.send(Late::Put(post.clone())) {
                        return;
                    }
                    posts.posted(post);
                }
                Some(Tidy::Find(due_ms)) => {
                    let found: Vec<_> =
                        self.bucket.iter().filter(|post| post.due_ms == due_ms).cloned().collect();
                    posts.found(found);
                }
                Some(Tidy::Delete(post)) => {
                    posts.leaving(&post);
                    if self.send(Late::Delete(post.clone())) {
                        posts.gone(&post);
                    }
                }
            }
        }
    }

    fn run(&mut self) {
        let mut memory: Vec<Option<Posts>> = vec![None; 2];
        // A replaced owner that does not know it yet, or what is left of it in flight.
        let mut zombie: Option<(usize, Posts)> = None;
        for _ in 0..12 {
            let who = self.below(2) as usize;
            // A take that was lost raises the generation, too.
            self.generation += 1 + u64::from(self.below(6) == 0);
            let (_, txid, at_ms) = self.latest;
            // On its own node nothing of it goes on.
            zombie = zombie.filter(|(node, _)| *node != who);
            let mut posts = match txid {
                0 => Posts::new(node(), self.generation),
                txid => Posts::opened(memory[who].take(), node(), self.generation, txid, at_ms),
            };
            let mut txid = txid;
            for _ in 0..self.below(8) {
                self.lateness();
                if let Some((_, zombie)) = &mut zombie {
                    self.tidy(zombie, 1);
                }
                if self.below(3) == 0
                    && let Some(post) = self.bucket.iter().next().cloned()
                {
                    // Looked at by a sweep: it may be carried out late.
                    posts.noticed(post);
                }
                txid += 1;
                if !self.commit(&mut posts, txid) {
                    break;
                }
                self.tidy(&mut posts, 4);
            }
            memory[who] = Some(posts.clone());
            zombie = Some((who, posts));
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4000))]

    // R-ALM-1, case A1
    #[test]
    fn whatever_is_late_or_lost_the_latest_state_has_an_entry_that_is_no_later(seed: u64) {
        let (bucket, late) = Default::default();
        Model { dice: seed, bucket, latest: (0, 0, None), late, generation: 0 }.run();
    }
}
