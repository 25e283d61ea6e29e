//! Convolutions beside sums that are written out.

use super::super::numbers;
use super::*;

struct Case {
    images: usize,
    groups: usize,
    shape: [usize; 4],
    input: [usize; 2],
    pads: [(usize, usize); 2],
    stride: [usize; 2],
    dilation: [usize; 2],
}

fn naive(case: &Case, x: &[f32], w: &[f32], bias: &[f32], output: [usize; 2]) -> Vec<f32> {
    let [outputs, inputs, kh, kw] = case.shape;
    let [h, width] = case.input;
    let mut y = Vec::new();
    for image in 0..case.images {
        for o in 0..outputs {
            let group = o / (outputs / case.groups);
            for oy in 0..output[0] {
                for ox in 0..output[1] {
                    let mut sum = bias[o];
                    for c in 0..inputs {
                        for ky in 0..kh {
                            for kx in 0..kw {
                                let iy = (oy * case.stride[0] + ky * case.dilation[0]).checked_sub(case.pads[0].0);
                                let ix = (ox * case.stride[1] + kx * case.dilation[1]).checked_sub(case.pads[1].0);
                                if let (Some(iy), Some(ix)) = (iy, ix)
                                    && iy < h
                                    && ix < width
                                {
                                    let channel = image * inputs * case.groups + group * inputs + c;
                                    sum +=
                                        x[(channel * h + iy) * width + ix] * w[((o * inputs + c) * kh + ky) * kw + kx];
                                }
                            }
                        }
                    }
                    y.push(sum);
                }
            }
        }
    }
    y
}

fn check(case: Case) {
    let [outputs, inputs, kh, kw] = case.shape;
    let output: [usize; 2] = std::array::from_fn(|i| {
        let reach = case.dilation[i] * ([kh, kw][i] - 1) + 1;
        (case.input[i] + case.pads[i].0 + case.pads[i].1 - reach) / case.stride[i] + 1
    });
    let x = numbers(case.images * case.groups * inputs * case.input[0] * case.input[1], 1);
    let w = numbers(outputs * inputs * kh * kw, 2);
    let bias = numbers(outputs, 3);
    let expected = naive(&case, &x, &w, &bias, output);
    let conv = Conv::new(&w, Some(&bias), case.groups, case.shape, case.stride, case.dilation);
    let (added, activation) = (numbers(expected.len(), 4), Activation::Clip(-3.0, 2.5));
    let finished: Vec<f32> = expected.iter().zip(&added).map(|(y, a)| (y + a).clamp(-3.0, 2.5)).collect();
    // Alone, an image a thread, and more threads than images.
    for (threads, joined) in (1..=case.images.min(3) + 1).flat_map(|threads| [(threads, false), (threads, true)]) {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        let mut y = vec![f32::NAN; expected.len()];
        let (added, activation, expected) = match joined {
            true => (Some(&added[..]), activation, &finished),
            false => (None, Activation::None, &expected),
        };
        pool.install(|| conv.run(&x, case.input, case.pads, output, added, activation, &mut y));
        let far = y.iter().zip(expected).position(|(a, b)| (a - b).abs() >= 1e-4 || a.is_nan());
        assert_eq!(far, None, "{:?}, {threads} threads", far.map(|i| (y[i], expected[i])));
    }
}

#[test]
fn convolutions_are_those_of_the_definition() {
    let plain = |shape, input, pad| Case {
        images: 2,
        groups: 1,
        shape,
        input,
        pads: [(pad, pad); 2],
        stride: [1, 1],
        dilation: [1, 1],
    };
    check(plain([9, 5, 3, 3], [13, 17], 1));
    check(plain([16, 3, 1, 1], [7, 7], 0));
    check(plain([6, 1, 5, 5], [28, 28], 2));
    check(plain([1, 2, 2, 3], [4, 50], 0));
    check(Case { stride: [2, 2], ..plain([20, 3, 7, 7], [31, 30], 3) });
    check(Case { stride: [2, 3], pads: [(0, 1), (2, 0)], ..plain([3, 3, 3, 2], [15, 16], 1) });
    check(Case { stride: [2, 2], ..plain([8, 8, 1, 1], [14, 14], 0) });
    check(Case { dilation: [2, 3], ..plain([4, 3, 3, 3], [20, 21], 2) });
    check(Case { groups: 10, stride: [2, 2], ..plain([10, 1, 3, 3], [15, 14], 1) });
    check(Case { groups: 10, ..plain([10, 1, 3, 3], [7, 7], 1) });
    check(Case { groups: 2, ..plain([24, 4, 3, 3], [9, 9], 1) });
    // Few channels a group, and lines that are longer than a panel.
    check(Case { groups: 3, ..plain([12, 4, 3, 3], [5, 120], 1) });
    check(Case { images: 9, stride: [2, 2], ..plain([24, 40, 1, 1], [7, 7], 0) });
    check(plain([80, 70, 1, 1], [21, 20], 0));
}

#[test]
fn convolutions_of_small_images_are_those_of_the_definition_however_many_there_are() {
    for images in [3, 4, 5, 16, 23, 37] {
        for (groups, shape, input, pads, dilation) in [
            (1, [8, 1, 3, 3], [8, 8], [(1, 1), (1, 1)], [1, 1]),
            (1, [17, 8, 3, 3], [4, 4], [(1, 1), (0, 2)], [1, 1]),
            (2, [24, 4, 2, 3], [5, 6], [(0, 0), (2, 1)], [1, 2]),
            (1, [4, 3, 1, 1], [3, 5], [(0, 0), (0, 0)], [1, 1]),
        ] {
            check(Case { images, groups, shape, input, pads, stride: [1, 1], dilation });
        }
    }
}

#[test]
fn convolutions_by_tiles_are_those_of_the_definition() {
    for (images, [outputs, inputs], input, pads) in [
        (2, [24, 20], [13, 17], [(1, 1), (1, 1)]),
        (1, [16, 16], [40, 9], [(0, 0), (0, 0)]),
        (5, [17, 64], [7, 7], [(1, 1), (1, 1)]),
        (3, [33, 16], [3, 70], [(2, 0), (0, 3)]),
        (1, [16, 19], [6, 6], [(1, 1), (1, 1)]),
        (20, [16, 16], [1, 1], [(1, 1), (1, 1)]),
        (1, [40, 16], [200, 35], [(1, 1), (2, 2)]),
    ] {
        let shape = [outputs, inputs, 3, 3];
        check(Case { images, groups: 1, shape, input, pads, stride: [1, 1], dilation: [1, 1] });
    }
}
