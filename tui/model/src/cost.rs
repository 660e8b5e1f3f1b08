//! The cost of measuring: the calibrated time of a begin and end, times their number.

use super::Model;

/// The cost of one point's measurements.
#[derive(Clone, Debug, PartialEq)]
pub struct Cost {
    /// The point's name.
    pub name: String,
    /// Measurements per second.
    pub rate: f64,
    /// Share of one CPU that measuring takes.
    pub share: f64,
    /// The cost as a share of the measured time. `None` without measured time.
    pub of_its_time: Option<f64>,
}

/// The cost of all points' measurements.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Costs {
    /// The points that measure, the most costly first.
    pub points: Vec<Cost>,
    /// All measurements per second.
    pub rate: f64,
    /// Share of one CPU that measuring takes.
    pub share: f64,
    /// Ticks of a begin and end.
    pub pair_ticks: f64,
}

impl Costs {
    /// The costs at the rates of the last interval.
    pub fn of(model: &Model) -> Self {
        let Some(clock) = model.snapshot().map(|snapshot| &snapshot.clock) else {
            return Self::default();
        };
        let pair_ticks = clock.overhead_pair as f64;
        let mut points: Vec<Cost> = model
            .points()
            .iter()
            .filter_map(|point| {
                let rate = point.rate().filter(|rate| *rate > 0.0)?;
                let share = rate * pair_ticks / clock.ticks_per_second;
                let of_its_time = point.mean().filter(|mean| *mean > 0.0).map(|m| pair_ticks / m);
                Some(Cost { name: point.name(), rate, share, of_its_time })
            })
            .collect();
        // Compare rates in steps of about an eighth, so that rows with nearly equal rates keep the
        // order of their ids and do not swap places at every poll.
        points.sort_by_key(|cost| std::cmp::Reverse((cost.rate.ln() * 8.0).round() as i64));
        let sum = |figure: fn(&Cost) -> f64| points.iter().map(figure).sum();
        Self { rate: sum(|cost| cost.rate), share: sum(|cost| cost.share), points, pair_ticks }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pfp_read::source::Source;
    use pfp_read::source::synthetic::{Synthetic, TICKS_PER_SECOND};

    #[test]
    fn costs_are_rates_times_the_cost_of_a_pair() {
        let (mut source, mut model) = (Synthetic::new(), Model::default());
        assert_eq!(Costs::of(&model), Costs::default());
        model.fold(source.poll().unwrap());
        model.fold(source.poll().unwrap());
        let costs = Costs::of(&model);
        let rates: f64 = model.points().iter().filter_map(|point| point.rate()).sum();
        assert_eq!(costs.rate, rates);
        let expected = rates * 60.0 / TICKS_PER_SECOND as f64;
        assert!((costs.share / expected - 1.0).abs() < 1e-12);
        assert_eq!(costs.points[0].name, "lz.match_longest_in_the_whole_window");
        let matched = model.point(5).unwrap();
        assert_eq!(costs.points[0].of_its_time, Some(60.0 / matched.mean().unwrap()));
        // A point that is off costs nothing and is not listed.
        assert!(!costs.points.iter().any(|cost| cost.name == "config.reload"));
    }
}
