//! The tables, as in docs/costs.md.

use crate::axes::Axis;

pub(crate) fn print(axes: &[Axis], machine: &str) {
    println!("{machine}");
    for axis in axes {
        print!("\n| {} |", axis.along);
        for series in &axis.series {
            print!(" {}, {} |", series.name, axis.figure);
        }
        println!("\n|---:|{}", "---:|".repeat(axis.series.len()));
        for (which, at) in axis.at.iter().enumerate() {
            print!("| {} |", thousands(*at));
            for series in &axis.series {
                print!(" {:.2} |", series.figures[which]);
            }
            println!();
        }
    }
}

/// Formats a whole number with commas.
pub(crate) fn thousands(value: f64) -> String {
    let digits = format!("{value:.0}");
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}
