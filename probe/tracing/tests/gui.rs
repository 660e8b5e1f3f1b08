//! A larger crate with annotations of the crate `profiling`: points have the functions' names, and
//! each entry is a measurement.

mod counter;

#[test]
fn functions_have_their_names() {
    let points = pfp_tracing::Options::default().subscriber().expect("there is no filter");
    let subscriber = counter::Around::new(points);
    tracing::subscriber::set_global_default(subscriber).expect("it is the first");
    let context = egui::Context::default();
    for frame in 0..30 {
        let output = context.run(Default::default(), |context| {
            egui::CentralPanel::default().show(context, |ui| {
                ui.heading(format!("frame {frame}"));
                egui::ScrollArea::vertical().show(ui, |ui| {
                    (0..50).for_each(|row| drop(ui.button(format!("row {row}"))));
                });
            });
        });
        let shapes = context.tessellate(output.shapes, output.pixels_per_point);
        assert!(!shapes.is_empty());
    }
    let (counted, measured) = (counter::counts(), counter::points());
    // Both counts have the same entries at each place. Only the names differ: pfp names a
    // function's point after the function, not `function_scope`.
    let places = |all: &std::collections::HashMap<counter::Place, u64>| {
        let mut all: Vec<_> =
            all.iter().map(|((_, file, line), count)| (file.clone(), *line, *count)).collect();
        all.sort();
        all
    };
    assert_eq!(places(&counted), places(&measured));
    let scopes = counted.keys().filter(|(name, ..)| name.ends_with("::function_scope")).count();
    assert!(scopes >= 10, "{counted:#?}");
    assert!(measured.keys().all(|(name, ..)| !name.contains("function_scope")), "{measured:#?}");
    let has = |wanted: &str| measured.keys().any(|(name, ..)| name.contains(wanted));
    assert!(has("egui::context::Context::tessellate"), "{measured:#?}");
    println!("gui: {} places, {} entries", counted.len(), counted.values().sum::<u64>());
}
