//! Thousands of points, each measured once. A line `PLACE TIMES` on standard input measures the
//! point with the index PLACE another TIMES times.

use std::io::BufRead;

use pfp::Point;

pub(crate) fn run(points: usize) {
    let name = |place| String::leak(format!("part{:02}.region{place:04}", place % 50));
    let points: Vec<Point> = (0..points).map(|place| Point::new(name(place))).collect();
    let points: &'static [Point] = points.leak();
    let measure = |place: usize| drop(points[place].measure());
    (0..points.len()).for_each(measure);
    for line in std::io::stdin().lock().lines().map_while(Result::ok) {
        let mut numbers = line.split(' ').map(|number| number.parse().expect("a number"));
        if let (Some(place), Some(times)) = (numbers.next(), numbers.next()) {
            (0..times).for_each(|_| measure(place));
        }
    }
}
