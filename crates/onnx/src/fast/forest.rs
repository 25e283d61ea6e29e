//! Decision trees: each row goes down every tree to a leaf.
//!
//! A descent is a chain of loads, each of which waits for the one before. So [`LANES`] descents go on side by side, of
//! many rows in one tree or of one row in many trees, and none of them branches: the two children of a node lie side by
//! side, the comparison is added to the place of the first, and a leaf is its own child. A node is one number of 8 bytes where
//! the forest allows it, and a tree's nodes lie breadth-first, so that the nodes most visited share cache lines. A tree is
//! descended by all rows of a block before the next one is.

use std::collections::VecDeque;

/// Descents that go on side by side.
const LANES: usize = 8;
/// Levels between two looks at whether all have arrived: an end that comes by chance costs as much as a level or two.
const STEPS: u32 = 6;
/// Groups of rows that go through a tree before the next tree is: their keys stay in the nearest cache.
const GROUPS: usize = 8;
/// Fewest rows that make a group. A row by itself goes through several trees at a time.
const FEWEST: usize = LANES / 2;
/// Bits of a [`Packed`] slot that say where its feature's keys are.
const PLACE: u32 = 12;
/// Keys of a group of rows with few features, and with as many as fit [`Packed`] slots.
const FEW: usize = 32 * LANES;
const MANY: usize = 1 << PLACE;

/// A number that nodes compare: float32 or float64.
pub(crate) trait Number: Copy + PartialOrd + Send + Sync + 'static {
    /// An integer that is greater where the number is. It has no sign: then adding a comparison is one instruction.
    type Key: Copy + Ord + Default + Send + Sync;
    /// A slot in less memory, for forests of few features and small trees.
    type Compact: Slot<Self> + Send + Sync;
    fn of(x: f64) -> Self;
    fn wide(self) -> f64;
    fn is_nan(self) -> bool;
    /// The next smaller number.
    fn below(self) -> Self;
    /// The key; that of 0 for -0. What is not a number has none that means anything.
    fn key(self) -> Self::Key;
    /// The greatest key.
    fn greatest() -> Self::Key;
    /// The slot in less memory, if its numbers are small enough.
    fn compact(slot: Wide<Self::Key>) -> Option<Self::Compact>;
}

macro_rules! number {
    ($float:ty, $key:ty, $compact:ty, $pack:expr) => {
        impl Number for $float {
            type Key = $key;
            type Compact = $compact;
            fn of(x: f64) -> Self {
                x as $float
            }
            fn wide(self) -> f64 {
                f64::from(self)
            }
            fn is_nan(self) -> bool {
                self.is_nan()
            }
            fn below(self) -> Self {
                self.next_down()
            }
            #[inline(always)]
            fn key(self) -> $key {
                // Negative numbers are below all others, and their bits run the other way.
                let bits = (self + 0.0).to_bits();
                let negative = (bits.cast_signed() >> (<$key>::BITS - 1)).cast_unsigned();
                bits ^ (negative | 1 << (<$key>::BITS - 1))
            }
            fn greatest() -> $key {
                <$key>::MAX
            }
            fn compact(slot: Wide<$key>) -> Option<$compact> {
                $pack(slot)
            }
        }
    };
}
number!(f32, u32, Packed, Packed::of);
number!(f64, u64, Wide<u64>, |_| None);

/// How a node compares a feature with its threshold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mode {
    AtMost,
    Below,
    AtLeast,
    Above,
    Equal,
    Differs,
    /// Whether the feature is one of a set of numbers.
    Member,
}

/// A node as a file describes it.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Node {
    Branch {
        mode: Mode,
        feature: usize,
        threshold: f64,
        /// Of a [`Mode::Member`].
        set: Vec<f64>,
        /// Where a feature that is not a number goes as if the comparison held.
        missing_holds: bool,
        /// The node where the comparison holds, and where it does not.
        holds: usize,
        fails: usize,
    },
    Leaf(usize),
}

/// Some trees, in their order.
pub(crate) struct Forest<T: Number> {
    layout: Layout<T>,
    /// The least number of features that a row must have.
    width: usize,
}

enum Layout<T: Number> {
    /// Few features and small trees.
    Small(Lanes<T::Compact>),
    Wide(Lanes<Wide<T::Key>>),
    /// Comparisons of other kinds.
    General(General<T>),
}

/// A node that asks whether a feature is greater than a threshold, by their keys.
pub(crate) trait Slot<T>: Copy {
    /// What the threshold is compared with.
    type Key: Copy + Default;
    fn key(x: T) -> Self::Key;
    /// Where the keys of the feature begin.
    fn place(self) -> usize;
    /// How far behind this node its first child lies, to which the row goes if the feature is not greater. The second one is
    /// its neighbour. 0 in a leaf, whose threshold nothing exceeds.
    fn ahead(self) -> usize;
    fn exceeded(self, key: Self::Key) -> bool;
}

/// A slot in 8 bytes: from the lowest bits up the place of the feature's keys, the way to the children and the threshold. Read as one
/// number, it stays in a register, and is compared as a whole: below a key are 32 bits of nothing.
#[derive(Clone, Copy)]
pub(crate) struct Packed(u64);

impl Packed {
    fn of(slot: Wide<u32>) -> Option<Packed> {
        let fits = slot.place < 1 << PLACE && slot.ahead < 1 << (u32::BITS - PLACE);
        fits.then(|| Packed(u64::from(slot.threshold) << 32 | u64::from(slot.ahead << PLACE | slot.place)))
    }
}

impl Slot<f32> for Packed {
    type Key = u64;

    #[inline(always)]
    fn key(x: f32) -> u64 {
        u64::from(x.key()) << 32
    }

    #[inline(always)]
    fn place(self) -> usize {
        self.0 as usize & ((1 << PLACE) - 1)
    }

    #[inline(always)]
    fn ahead(self) -> usize {
        (self.0 as u32 >> PLACE) as usize
    }

    #[inline(always)]
    fn exceeded(self, key: u64) -> bool {
        self.0 < key
    }
}

/// A slot with room for any forest.
#[derive(Clone, Copy)]
pub(crate) struct Wide<K> {
    threshold: K,
    place: u32,
    ahead: u32,
}

impl<T: Number> Slot<T> for Wide<T::Key> {
    type Key = T::Key;

    #[inline(always)]
    fn key(x: T) -> T::Key {
        x.key()
    }

    #[inline(always)]
    fn place(self) -> usize {
        self.place as usize
    }

    #[inline(always)]
    fn ahead(self) -> usize {
        self.ahead as usize
    }

    #[inline(always)]
    fn exceeded(self, key: T::Key) -> bool {
        self.threshold < key
    }
}

/// The keys of a group of rows: of each feature [`LANES`] side by side.
trait Keys<K> {
    fn new(count: usize) -> Self;
    fn all(&mut self) -> &mut [K];
    /// The key of a row of the feature whose keys begin at `place`.
    fn of(&self, place: usize, lane: usize) -> K;
}

/// In an array of a size that is a power of two no index is beyond the end. None needs a check, each of which would keep the lanes
/// waiting for each other.
impl<K: Copy + Default, const N: usize> Keys<K> for [K; N] {
    fn new(_count: usize) -> Self {
        [K::default(); N]
    }

    fn all(&mut self) -> &mut [K] {
        self
    }

    #[inline(always)]
    fn of(&self, place: usize, lane: usize) -> K {
        self[(place & (N - LANES)) + lane]
    }
}

impl<K: Copy + Default> Keys<K> for Vec<K> {
    fn new(count: usize) -> Self {
        vec![K::default(); count]
    }

    fn all(&mut self) -> &mut [K] {
        self
    }

    #[inline(always)]
    fn of(&self, place: usize, lane: usize) -> K {
        self[place + lane]
    }
}

struct Lanes<S> {
    slots: Vec<S>,
    /// For each slot its leaf, or 0.
    leaves: Vec<u32>,
    /// For each slot whether a feature that is not a number goes to the second child.
    missing_second: Vec<bool>,
    roots: Vec<u32>,
    /// The branches on the longest way from each root.
    depths: Vec<u32>,
    /// Features that are compared: the first ones of a row.
    features: usize,
}

/// The nodes as they came, and the sets sorted.
struct General<T> {
    nodes: Vec<Node>,
    thresholds: Vec<T>,
    roots: Vec<usize>,
}

/// Most nodes of a forest, leaves that are named several times counted each time.
const MAX_NODES: usize = 1 << 26;

impl<T: Number> Forest<T> {
    /// A forest of the trees that begin at `roots`. The error says what is wrong with them.
    pub(crate) fn new(nodes: &[Node], roots: &[usize]) -> Result<Forest<T>, String> {
        let mut features = 0;
        let mut general = false;
        for node in nodes {
            if let Node::Branch { mode, feature, threshold, .. } = node {
                features = features.max(feature.saturating_add(1));
                general |= matches!(mode, Mode::Equal | Mode::Differs | Mode::Member) || threshold.is_nan();
                // Nothing is below it, and so there is no number that it could be replaced by.
                general |= matches!(mode, Mode::Below | Mode::AtLeast) && threshold.wide() == f64::NEG_INFINITY;
            }
        }
        let wide = Lanes::new::<T>(nodes, roots, features)?;
        let layout = if general {
            let thresholds = nodes.iter().map(|node| match node {
                Node::Branch { threshold, .. } => T::of(*threshold),
                Node::Leaf(_) => T::of(0.0),
            });
            Layout::General(General { nodes: nodes.to_vec(), thresholds: thresholds.collect(), roots: roots.to_vec() })
        } else {
            match wide.compact(T::compact) {
                Some(small) => Layout::Small(small),
                None => Layout::Wide(wide),
            }
        };
        Ok(Forest { layout, width: features })
    }

    /// The least number of features that a row must have.
    pub(crate) fn width(&self) -> usize {
        self.width
    }

    /// Tells for each row, and for each row in the order of the trees, which leaf it reaches. A row has `width` features, no
    /// fewer than [`width`](Forest::width).
    pub(crate) fn visit(&self, rows: &[T], width: usize, reached: impl FnMut(usize, usize)) {
        match &self.layout {
            Layout::Small(lanes) => lanes.visit(rows, width, reached),
            Layout::Wide(lanes) => lanes.visit(rows, width, reached),
            Layout::General(general) => general.visit(rows, width, reached),
        }
    }
}

impl<K: Copy + Ord + Default> Lanes<Wide<K>> {
    /// Lays the trees out one behind the other, each breadth-first with children side by side.
    fn new<T: Number<Key = K>>(nodes: &[Node], roots: &[usize], features: usize) -> Result<Lanes<Wide<K>>, String> {
        let most = nodes.len().saturating_mul(4).clamp(1 << 10, MAX_NODES);
        let (mut slots, mut leaves, mut missing_second) = (Vec::new(), Vec::new(), Vec::new());
        let (mut starts, mut depths) = (Vec::new(), Vec::new());
        for &root in roots {
            let start = slots.len();
            starts.push(u32::try_from(start).map_err(|_| "there are too many nodes")?);
            let mut waiting = VecDeque::from([(root, 0)]);
            let mut deepest = 0;
            // Behind the nodes that have a slot come those that wait for one.
            while let Some((at, depth)) = waiting.pop_front() {
                deepest = depth;
                if slots.len() + waiting.len() > most {
                    return Err("its trees share nodes, or go round in circles".into());
                }
                let first = waiting.len() as u32 + 1;
                let (slot, leaf, missing) = match nodes.get(at) {
                    None => return Err(format!("there is no node {at}")),
                    Some(Node::Leaf(leaf)) => {
                        let leaf = u32::try_from(*leaf).map_err(|_| "there are too many leaves")?;
                        (Wide { threshold: T::greatest(), place: 0, ahead: 0 }, leaf, false)
                    }
                    Some(Node::Branch { mode, feature, threshold, missing_holds, holds, fails, .. }) => {
                        let place = u32::try_from(feature.saturating_mul(LANES));
                        let place = place.map_err(|_| format!("there is no feature {feature}"))?;
                        let threshold = T::of(*threshold);
                        // x >= t fails where x < t holds, and x < t is x <= the number below t.
                        let (threshold, turned) = match mode {
                            Mode::AtMost => (threshold, false),
                            Mode::Below => (threshold.below(), false),
                            Mode::AtLeast => (threshold.below(), true),
                            Mode::Above => (threshold, true),
                            Mode::Equal | Mode::Differs | Mode::Member => (threshold, false),
                        };
                        let (near, far) = if turned { (fails, holds) } else { (holds, fails) };
                        waiting.extend([(*near, depth + 1), (*far, depth + 1)]);
                        (Wide { threshold: threshold.key(), place, ahead: first }, 0, *missing_holds == turned)
                    }
                };
                slots.push(slot);
                leaves.push(leaf);
                missing_second.push(missing);
            }
            depths.push(deepest);
        }
        Ok(Lanes { slots, leaves, missing_second, roots: starts, depths, features })
    }

    /// The same in less memory, if every slot fits.
    fn compact<S>(&self, compact: impl Fn(Wide<K>) -> Option<S>) -> Option<Lanes<S>> {
        Some(Lanes {
            slots: self.slots.iter().map(|slot| compact(*slot)).collect::<Option<_>>()?,
            leaves: self.leaves.clone(),
            missing_second: self.missing_second.clone(),
            roots: self.roots.clone(),
            depths: self.depths.clone(),
            features: self.features,
        })
    }
}

impl<S: Copy> Lanes<S> {
    fn visit<T: Number>(&self, rows: &[T], width: usize, reached: impl FnMut(usize, usize))
    where
        S: Slot<T>,
    {
        let keys = self.features * LANES;
        if keys <= FEW {
            self.visit_by::<T, [S::Key; FEW]>(rows, width, reached);
        } else if keys <= MANY {
            self.visit_by::<T, [S::Key; MANY]>(rows, width, reached);
        } else {
            self.visit_by::<T, Vec<S::Key>>(rows, width, reached);
        }
    }

    fn visit_by<T: Number, K: Keys<S::Key>>(&self, rows: &[T], width: usize, mut reached: impl FnMut(usize, usize))
    where
        S: Slot<T>,
    {
        let groups = (rows.len() / width).div_ceil(LANES).min(GROUPS);
        let mut keys: Vec<K> = (0..groups).map(|_| K::new(self.features * LANES)).collect();
        for (block, rows) in rows.chunks(GROUPS * LANES * width).enumerate() {
            let (first, count) = (block * GROUPS * LANES, rows.len() / width);
            if rows.chunks_exact(width).any(|row| row[..self.features].iter().any(|x| x.is_nan())) {
                for (row, features) in rows.chunks_exact(width).enumerate() {
                    for &root in &self.roots {
                        reached(first + row, self.leaves[self.with_missing(root, features)] as usize);
                    }
                }
                continue;
            }
            // Too few rows to fill the lanes are left alone.
            let grouped = if count % LANES < FEWEST { count - count % LANES } else { count };
            for (keys, rows) in keys.iter_mut().zip(rows[..grouped * width].chunks(LANES * width)) {
                for (lane, row) in rows.chunks_exact(width).enumerate() {
                    for (keys, x) in keys.all().chunks_exact_mut(LANES).zip(&row[..self.features]) {
                        keys[lane] = S::key(*x);
                    }
                }
            }
            for (&root, &depth) in self.roots.iter().zip(&self.depths) {
                let (slots, leaves) = (&self.slots[root as usize..], &self.leaves[root as usize..]);
                for (group, keys) in (0..grouped).step_by(LANES).zip(&keys) {
                    let at = descend::<T, S>(slots, [0; LANES], depth, |place, lane| keys.of(place, lane));
                    // With a loop of known length, all of this takes a tenth less.
                    if group + LANES <= grouped {
                        for (lane, at) in at.into_iter().enumerate() {
                            reached(first + group + lane, leaves[at] as usize);
                        }
                    } else {
                        for (row, at) in (group..grouped).zip(at) {
                            reached(first + row, leaves[at] as usize);
                        }
                    }
                }
            }
            for row in grouped..count {
                let keys = &mut keys[0];
                for (keys, x) in keys.all().chunks_exact_mut(LANES).zip(&rows[row * width..][..self.features]) {
                    keys.fill(S::key(*x));
                }
                for (roots, depths) in self.roots.chunks(LANES).zip(self.depths.chunks(LANES)) {
                    let starts = std::array::from_fn(|lane| roots[lane.min(roots.len() - 1)] as usize);
                    let depth = depths.iter().copied().max().unwrap_or(0);
                    let at = descend::<T, S>(&self.slots, starts, depth, |place, lane| keys.of(place, lane));
                    for &at in &at[..roots.len()] {
                        reached(first + row, self.leaves[at] as usize);
                    }
                }
            }
        }
    }

    /// The slot of the leaf that a row reaches of which some features are not numbers.
    fn with_missing<T: Number>(&self, root: u32, row: &[T]) -> usize
    where
        S: Slot<T>,
    {
        let mut at = root as usize;
        loop {
            let slot = self.slots[at];
            if slot.ahead() == 0 {
                return at;
            }
            let x = row[slot.place() / LANES];
            let second = if x.is_nan() { self.missing_second[at] } else { slot.exceeded(S::key(x)) };
            at += slot.ahead() + usize::from(second);
        }
    }
}

/// The slots of the leaves that are reached from some others, by keys of places and lanes, on ways of at most `depth` branches.
/// The sum of places and comparisons is one of whole registers: the compiler would make shorter ones into vectors, number by number.
#[inline(always)]
fn descend<T, S: Slot<T>>(
    slots: &[S],
    mut at: [usize; LANES],
    depth: u32,
    key: impl Fn(usize, usize) -> S::Key,
) -> [usize; LANES] {
    let step = |at: &mut [usize; LANES]| {
        let mut moved = 0;
        for (lane, at) in at.iter_mut().enumerate() {
            let slot = slots[*at];
            let ahead = slot.ahead();
            *at += ahead + usize::from(slot.exceeded(key(slot.place(), lane)));
            moved |= ahead;
        }
        moved
    };
    let mut left = depth;
    while left > 0 {
        let some = left.min(STEPS);
        left -= some;
        for _ in 1..some {
            step(&mut at);
        }
        if step(&mut at) == 0 {
            break;
        }
    }
    at
}

impl<T: Number> General<T> {
    fn visit(&self, rows: &[T], width: usize, mut reached: impl FnMut(usize, usize)) {
        for (row, features) in rows.chunks_exact(width).enumerate() {
            for &root in &self.roots {
                let mut at = root;
                let leaf = loop {
                    match &self.nodes[at] {
                        Node::Leaf(leaf) => break *leaf,
                        Node::Branch { mode, feature, set, missing_holds, holds, fails, .. } => {
                            let (x, threshold) = (features[*feature], self.thresholds[at]);
                            let compared = match mode {
                                Mode::AtMost => x <= threshold,
                                Mode::Below => x < threshold,
                                Mode::AtLeast => x >= threshold,
                                Mode::Above => x > threshold,
                                Mode::Equal => x == threshold,
                                Mode::Differs => x != threshold,
                                Mode::Member => set.iter().any(|member| x == T::of(*member)),
                            };
                            at = if compared || (*missing_holds && x.is_nan()) { *holds } else { *fails };
                        }
                    }
                };
                reached(row, leaf);
            }
        }
    }
}

#[cfg(test)]
mod tests;
