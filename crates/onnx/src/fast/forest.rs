//! Decision trees: each row goes down every tree to a leaf.
//!
//! A descent is a chain of loads, each of which waits for the one before. So [`LANES`] descents go on side by side, of
//! many rows in one tree or of one row in many trees, and none of them branches: the two children of a node lie side by
//! side, the comparison is added to the place of the first, and a leaf is its own child. A node takes 8 bytes where the
//! forest allows it, and a tree's nodes lie breadth-first, so that the nodes most visited share cache lines.

use std::collections::VecDeque;

/// Descents that go on side by side.
const LANES: usize = 8;
/// Levels between two looks at whether all have arrived: an end that comes by chance costs as much as a level or two.
const STEPS: u32 = 5;
/// Features of which a group's keys fit an array, so that looking one up needs no check. A power of two.
const FEATURES: usize = 256;
/// Sizes of trees, in slots, that are looked up as arrays; powers of two.
const SIZES: [usize; 3] = [256, 1024, 4096];
/// Rows that go through all trees before the next ones do: their features and results stay in the nearest cache.
const BLOCK: usize = 64;

/// A number that nodes compare: float32 or float64.
pub(crate) trait Number: Copy + PartialOrd + Send + Sync + 'static {
    /// An integer that is greater where the number is.
    type Key: Copy + Ord + Default + Send + Sync;
    /// A slot in less memory, for forests of few features and small trees.
    type Compact: Slot<Key = Self::Key> + Send + Sync;
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
                // Of negative numbers, all bits but the sign run the other way.
                let bits = (self + 0.0).to_bits().cast_signed();
                bits ^ ((bits >> (<$key>::BITS - 1)) & <$key>::MAX)
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
number!(f32, i32, Packed, Packed::of);
number!(f64, i64, Wide<i64>, |_| None);

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
pub(crate) trait Slot: Copy {
    type Key: Copy + Ord + Default;
    /// The threshold, the feature, and how far behind this node its first child lies, to which the row goes if the feature is
    /// not greater. The second one is its neighbour. 0 in a leaf, whose threshold nothing exceeds.
    fn parts(self) -> (Self::Key, usize, u32);
}

/// A slot in 8 bytes: from the lowest bits up the threshold, the feature and the way to the children. Read as one number, it
/// stays in a register.
#[derive(Clone, Copy)]
pub(crate) struct Packed(u64);

impl Packed {
    fn of(slot: Wide<i32>) -> Option<Packed> {
        let (feature, ahead) = (u16::try_from(slot.feature).ok()?, u16::try_from(slot.ahead).ok()?);
        Some(Packed(u64::from(slot.threshold as u32) | u64::from(feature) << 32 | u64::from(ahead) << 48))
    }
}

impl Slot for Packed {
    type Key = i32;

    #[inline(always)]
    fn parts(self) -> (i32, usize, u32) {
        (self.0 as i32, (self.0 >> 32) as u16 as usize, (self.0 >> 48) as u32)
    }
}

/// A slot with room for any forest.
#[derive(Clone, Copy)]
pub(crate) struct Wide<K> {
    threshold: K,
    feature: u32,
    ahead: u32,
}

impl<K: Copy + Ord + Default> Slot for Wide<K> {
    type Key = K;

    #[inline(always)]
    fn parts(self) -> (K, usize, u32) {
        (self.threshold, self.feature as usize, self.ahead)
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
            }
        }
        let wide = Lanes::new::<T>(nodes, roots)?;
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
    fn new<T: Number<Key = K>>(nodes: &[Node], roots: &[usize]) -> Result<Lanes<Wide<K>>, String> {
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
                        (Wide { threshold: T::greatest(), feature: 0, ahead: 0 }, leaf, false)
                    }
                    Some(Node::Branch { mode, feature, threshold, missing_holds, holds, fails, .. }) => {
                        let feature = u32::try_from(*feature).map_err(|_| format!("there is no feature {feature}"))?;
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
                        (Wide { threshold: threshold.key(), feature, ahead: first }, 0, *missing_holds == turned)
                    }
                };
                slots.push(slot);
                leaves.push(leaf);
                missing_second.push(missing);
            }
            depths.push(deepest);
        }
        let beyond = Wide { threshold: T::greatest(), feature: 0, ahead: 0 };
        slots.resize(slots.len() + SIZES[SIZES.len() - 1], beyond);
        Ok(Lanes { slots, leaves, missing_second, roots: starts, depths })
    }

    /// The same in less memory, if every slot fits.
    fn compact<S>(&self, compact: impl Fn(Wide<K>) -> Option<S>) -> Option<Lanes<S>> {
        Some(Lanes {
            slots: self.slots.iter().map(|slot| compact(*slot)).collect::<Option<_>>()?,
            leaves: self.leaves.clone(),
            missing_second: self.missing_second.clone(),
            roots: self.roots.clone(),
            depths: self.depths.clone(),
        })
    }
}

impl<S: Slot> Lanes<S> {
    fn visit<T: Number<Key = S::Key>>(&self, rows: &[T], width: usize, mut reached: impl FnMut(usize, usize)) {
        // The keys of a group of rows, of each feature side by side; or those of one row.
        let mut keys = vec![S::Key::default(); if width <= FEATURES { width } else { width * LANES }];
        let mut few = [S::Key::default(); FEATURES * LANES];
        for (block, rows) in rows.chunks(BLOCK * width).enumerate() {
            let first = block * BLOCK;
            if rows.iter().any(|x| x.is_nan()) {
                for (row, features) in rows.chunks_exact(width).enumerate() {
                    for &root in &self.roots {
                        reached(first + row, self.leaves[self.with_missing(root, features)] as usize);
                    }
                }
                continue;
            }
            let mut groups = rows.chunks_exact(LANES * width);
            for (group, rows) in groups.by_ref().enumerate() {
                let side_by_side = if width <= FEATURES { &mut few[..] } else { &mut keys[..] };
                for (lane, row) in rows.chunks_exact(width).enumerate() {
                    for (keys, x) in side_by_side.chunks_exact_mut(LANES).zip(row) {
                        keys[lane] = x.key();
                    }
                }
                for (tree, &root) in self.roots.iter().enumerate() {
                    let at = if width <= FEATURES {
                        self.descend_one(tree, root, &few)
                    } else {
                        self.descend([root; LANES], |feature, lane| keys[feature * LANES + lane])
                    };
                    for (lane, at) in at.into_iter().enumerate() {
                        reached(first + group * LANES + lane, self.leaves[at as usize] as usize);
                    }
                }
            }
            // Too few rows to fill the lanes: each goes through several trees at a time.
            let left = groups.remainder();
            let first = first + (rows.len() - left.len()) / width;
            for (row, features) in left.chunks_exact(width).enumerate() {
                keys.iter_mut().zip(features).for_each(|(key, x)| *key = x.key());
                for roots in self.roots.chunks(LANES) {
                    let starts = std::array::from_fn(|lane| roots[lane.min(roots.len() - 1)]);
                    let at = self.descend(starts, |feature, _| keys[feature]);
                    for &at in &at[..roots.len()] {
                        reached(first + row, self.leaves[at as usize] as usize);
                    }
                }
            }
        }
    }

    /// The slots of the leaves that a group of rows of few features reaches in one tree.
    #[inline(always)]
    fn descend_one(&self, tree: usize, root: u32, keys: &[S::Key; FEATURES * LANES]) -> [u32; LANES] {
        let end = self.roots.get(tree + 1).map_or(self.leaves.len(), |&next| next as usize);
        let (size, slots) = (end - root as usize, &self.slots[root as usize..]);
        let depth = self.depths[tree];
        // Behind the last tree there are as many slots as the largest array has.
        let found = if size <= SIZES[0] {
            slots.first_chunk::<{ SIZES[0] }>().map(|slots| descend_within(slots, keys, depth))
        } else if size <= SIZES[1] {
            slots.first_chunk::<{ SIZES[1] }>().map(|slots| descend_within(slots, keys, depth))
        } else if size <= SIZES[2] {
            slots.first_chunk::<{ SIZES[2] }>().map(|slots| descend_within(slots, keys, depth))
        } else {
            None
        };
        match found {
            Some(at) => at.map(|at| at + root),
            None => self.descend([root; LANES], |feature, lane| keys[(feature * LANES + lane) % keys.len()]),
        }
    }

    /// The slots of the leaves that are reached from some others, by keys of features and lanes.
    #[inline(always)]
    fn descend(&self, mut at: [u32; LANES], key: impl Fn(usize, usize) -> S::Key) -> [u32; LANES] {
        let slots = &self.slots[..];
        loop {
            let mut moved = 0;
            for lane in 0..LANES {
                let (threshold, feature, ahead) = slots[at[lane] as usize].parts();
                let step = ahead + u32::from(key(feature, lane) > threshold);
                at[lane] += step;
                moved |= step;
            }
            if moved == 0 {
                return at;
            }
        }
    }

    /// The slot of the leaf that a row reaches of which some features are not numbers.
    fn with_missing<T: Number<Key = S::Key>>(&self, root: u32, row: &[T]) -> usize {
        let mut at = root as usize;
        loop {
            let (threshold, feature, ahead) = self.slots[at].parts();
            if ahead == 0 {
                return at;
            }
            let x = row[feature];
            let second = if x.is_nan() { self.missing_second[at] } else { x.key() > threshold };
            at += ahead as usize + usize::from(second);
        }
    }
}

/// The places in a tree, counted from its root, of the leaves that a group of rows reaches. No index is beyond an array's
/// end: none needs a check, each of which would keep the lanes waiting for each other.
#[inline(always)]
fn descend_within<S: Slot, const N: usize>(
    slots: &[S; N],
    keys: &[S::Key; FEATURES * LANES],
    depth: u32,
) -> [u32; LANES] {
    let mut at = [0u32; LANES];
    let step = |at: &mut [u32; LANES]| {
        let mut moved = 0;
        for lane in 0..LANES {
            let (threshold, feature, ahead) = slots[at[lane] as usize & (N - 1)].parts();
            let step = ahead + u32::from(keys[(feature & (FEATURES - 1)) * LANES + lane] > threshold);
            at[lane] += step;
            moved |= step;
        }
        moved
    };
    let mut left = depth;
    while left > 0 {
        let some = left.min(STEPS);
        (1..some).for_each(|_| {
            step(&mut at);
        });
        left -= some;
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
mod tests {
    use super::super::numbers;
    use super::*;

    /// A tree of random comparisons of some modes over `width` features, down to `depth`; leaves are numbered on.
    fn tree(
        nodes: &mut Vec<Node>,
        seed: &mut usize,
        modes: &[Mode],
        width: usize,
        depth: usize,
        leaves: &mut usize,
    ) -> usize {
        *seed += 1;
        let at = nodes.len();
        let own = *seed;
        let draw = |salt: usize| (own * 7919 + salt * 104_729) % 1009;
        if depth == 0 || draw(1) % 5 == 0 {
            nodes.push(Node::Leaf(*leaves));
            *leaves += 1;
            return at;
        }
        let (mode, feature, missing_holds) = (modes[draw(2) % modes.len()], draw(3) % width, draw(4) % 2 == 0);
        // Thresholds that features hit exactly, too.
        let threshold = f64::from(numbers(100, 1)[draw(5) % 100]);
        nodes.push(Node::Leaf(0));
        let holds = tree(nodes, seed, modes, width, depth - 1, leaves);
        let fails = tree(nodes, seed, modes, width, depth - 1, leaves);
        let set = vec![threshold, f64::from(numbers(100, 1)[draw(6) % 100])];
        nodes[at] = Node::Branch { mode, feature, threshold, set, missing_holds, holds, fails };
        at
    }

    fn forest(modes: &[Mode], width: usize, trees: usize) -> (Vec<Node>, Vec<usize>) {
        let (mut nodes, mut seed, mut leaves) = (Vec::new(), width, 0);
        let roots = (0..trees).map(|_| tree(&mut nodes, &mut seed, modes, width, 7, &mut leaves)).collect();
        (nodes, roots)
    }

    /// Every leaf that is reached, as `General` finds it.
    fn expected(nodes: &[Node], roots: &[usize], rows: &[f32], width: usize) -> Vec<Vec<usize>> {
        let thresholds = nodes.iter().map(|node| match node {
            Node::Branch { threshold, .. } => *threshold as f32,
            Node::Leaf(_) => 0.0,
        });
        let general = General { nodes: nodes.to_vec(), thresholds: thresholds.collect(), roots: roots.to_vec() };
        let mut reached = vec![Vec::new(); rows.len() / width];
        general.visit(rows, width, |row, leaf| reached[row].push(leaf));
        reached
    }

    #[test]
    fn rows_reach_in_lanes_the_leaves_that_they_reach_one_by_one() {
        let modes = [Mode::AtMost, Mode::Below, Mode::AtLeast, Mode::Above];
        for (width, trees, count) in [(5, 1, 1), (5, 3, 7), (1, 8, 8), (5, 13, 9), (5, 20, 131), (FEATURES + 7, 9, 17)]
        {
            let (nodes, roots) = forest(&modes, width, trees);
            for missing in [false, true] {
                let mut rows = numbers(100, 1).repeat(count * width / 100 + 1);
                rows.truncate(count * width);
                if missing {
                    rows.iter_mut().step_by(7).for_each(|x| *x = f32::NAN);
                    rows.iter_mut().skip(3).step_by(11).for_each(|x| *x = f32::INFINITY);
                }
                let forest = Forest::<f32>::new(&nodes, &roots).unwrap();
                assert!(matches!(forest.layout, Layout::Small(_)));
                let wide = Forest { layout: Layout::Wide(Lanes::new::<f32>(&nodes, &roots).unwrap()), width };
                for forest in [forest, wide] {
                    let mut reached = vec![Vec::new(); count];
                    forest.visit(&rows, width, |row, leaf| reached[row].push(leaf));
                    assert_eq!(reached, expected(&nodes, &roots, &rows, width), "{trees} trees, {count} rows");
                }
            }
        }
    }

    #[test]
    fn other_comparisons_are_made_as_they_are() {
        let (nodes, roots) = forest(&[Mode::Equal, Mode::Differs, Mode::Member, Mode::AtMost], 3, 9);
        let rows = numbers(99, 1);
        let forest = Forest::<f32>::new(&nodes, &roots).unwrap();
        assert!(matches!(forest.layout, Layout::General(_)));
        let mut reached = vec![Vec::new(); 33];
        forest.visit(&rows, 3, |row, leaf| reached[row].push(leaf));
        assert_eq!(reached, expected(&nodes, &roots, &rows, 3));
    }

    #[test]
    fn a_tree_that_goes_round_in_circles_or_leads_nowhere_is_refused() {
        let branch = |holds, fails| Node::Branch {
            mode: Mode::AtMost,
            feature: 0,
            threshold: 0.0,
            set: Vec::new(),
            missing_holds: false,
            holds,
            fails,
        };
        let refusal = |nodes: &[Node]| Forest::<f32>::new(nodes, &[0]).err().unwrap();
        assert!(refusal(&[branch(0, 0)]).contains("circles"));
        assert!(refusal(&[branch(1, 2), Node::Leaf(0)]).contains("no node 2"));
    }
}
