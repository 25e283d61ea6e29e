//! Forests as they are laid out, beside walks from node to node.

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
    let (few, many) = (FEW / LANES, MANY / LANES);
    let sizes =
        [(5, 1, 1), (5, 3, 7), (1, 8, 8), (5, 13, 9), (5, 20, 131), (5, 4, 68), (few + 7, 9, 17), (many + 7, 9, 12)];
    for (width, trees, count) in sizes {
        let (nodes, roots) = forest(&modes, width, trees);
        for missing in [false, true] {
            let mut rows = numbers(100, 1).repeat(count * width / 100 + 1);
            rows.truncate(count * width);
            if missing {
                rows.iter_mut().step_by(7).for_each(|x| *x = f32::NAN);
                rows.iter_mut().skip(3).step_by(11).for_each(|x| *x = f32::INFINITY);
            }
            let forest = Forest::<f32>::new(&nodes, &roots).unwrap();
            assert_eq!(matches!(forest.layout, Layout::Small(_)), width <= many, "{width} features");
            let wide = Layout::Wide(Lanes::new::<f32>(&nodes, &roots, forest.width).unwrap());
            let wide = Forest { layout: wide, width };
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
