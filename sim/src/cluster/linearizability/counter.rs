//! A counter that additions raise by one and looks leave as it is; each answer is what it is then.
//!
//! Each value is reached at one instant, the greater the later. The addition that was told of it bounds that instant on
//! both sides. A look that saw it ended no earlier, and one that saw the value before it began no later. Where no addition
//! was told of it, one without an answer reached it, each of those at most one value.

/// One call.
#[derive(Debug, Clone, Copy)]
pub struct Call {
    /// When it was made.
    pub began: u64,
    /// It adds one, and does not only look.
    pub adds: bool,
    /// When it was answered, and with what.
    pub answered: Option<(u64, u64)>,
}

/// When a value was reached.
#[derive(Debug, Clone, Copy)]
struct Reached {
    earliest: u64,
    latest: u64,
    /// By an addition that was told of it.
    told: bool,
}

/// Whether an order explains what the calls were told.
pub fn explains(calls: &[Call]) -> bool {
    let Some(values) = values(calls) else { return false };
    let Some(latest) = latest_instants(&values) else { return false };
    // An addition without an answer has no end: the latest instants, which leave each other in order, suit it best.
    let mut untold = values.iter().zip(&latest).filter(|(value, _)| !value.told).map(|(_, latest)| *latest);
    let mut open: Vec<u64> =
        calls.iter().filter(|call| call.adds && call.answered.is_none()).map(|call| call.began).collect();
    open.sort_unstable();
    let mut open = open.into_iter();
    untold.all(|latest| open.next().is_some_and(|began| began <= latest))
}

/// What the calls say of the values from 1 to the greatest that anybody was told; `None` when no order can have led to it.
fn values(calls: &[Call]) -> Option<Vec<Reached>> {
    let greatest = calls.iter().filter_map(|call| call.answered).map(|(_, value)| value).max().unwrap_or(0);
    let additions = calls.iter().filter(|call| call.adds).count();
    let greatest = usize::try_from(greatest).ok().filter(|greatest| *greatest <= additions)?;
    let unknown = Reached { earliest: 0, latest: u64::MAX, told: false };
    // In the place of its own number; 0 is there from the beginning.
    let mut values = vec![unknown; greatest + 1];
    values[0].told = true;
    for Call { began, adds, answered } in calls {
        let Some((answered, value)) = *answered else { continue };
        let place = value as usize;
        values[place].latest = values[place].latest.min(answered);
        if *adds {
            if values[place].told {
                return None;
            }
            values[place] =
                Reached { earliest: values[place].earliest.max(*began), told: true, ..values[place] };
        } else if let Some(next) = values.get_mut(place + 1) {
            next.earliest = next.earliest.max(*began);
        }
    }
    Some(values)
}

/// The latest instants at which all values can have been reached; `None` when one was told before it can have been.
fn latest_instants(values: &[Reached]) -> Option<Vec<u64>> {
    let mut latest: Vec<u64> = values.iter().map(|value| value.latest).collect();
    for place in (1..latest.len()).rev() {
        latest[place - 1] = latest[place - 1].min(latest[place]);
    }
    let mut earliest = 0;
    let possible = values.iter().zip(&latest).all(|(value, latest)| {
        earliest = earliest.max(value.earliest);
        earliest <= *latest
    });
    possible.then_some(latest)
}
