//! The attribute macros of `pfp-probe`; use them through that crate.

use proc_macro::TokenStream;
use proc_macro2::Span;
use quote::quote;
use syn::parse::{Parse, ParseStream};
use syn::{Expr, Ident, ItemFn, LitStr, Token, parse_macro_input};

/// Measures every call of a function.
///
/// `#[pfp::function]` names the point as the function is named,
/// `#[pfp::function("name")]` as it says. An `async fn` is measured over all its
/// polls: the time between them is not counted.
///
/// `#[pfp::function(bytes = data.len())]` and `#[pfp::function("name", items = n)]`
/// give each call amounts, worked out of its arguments as it begins; of an `async fn`,
/// as it is first polled.
#[proc_macro_attribute]
pub fn function(arguments: TokenStream, item: TokenStream) -> TokenStream {
    expand(arguments, item)
}

/// The same as [`macro@function`].
#[proc_macro_attribute]
pub fn measure(arguments: TokenStream, item: TokenStream) -> TokenStream {
    expand(arguments, item)
}

/// Measures the rest of the block in laps: `pfp::laps!("first")` begins a region,
/// and each [`lap!`] after it ends the one before and begins the next. The end of
/// the block ends the last. `pfp::laps!()` begins none, which is what a loop
/// wants that goes from the last lap to the first. The crate's page has an example.
///
/// Either may have amounts, as `pfp::scope!` has them: `pfp::lap!("read", bytes = n)`.
#[proc_macro]
pub fn laps(first: TokenStream) -> TokenStream {
    let guard = guard();
    let (begun, first) = if first.is_empty() {
        (quote! { ::pfp::Guard::empty() }, None)
    } else {
        let Lap { name, amounts } = parse_macro_input!(first as Lap);
        if amounts.is_empty() {
            let point = point(&name);
            (quote! { #point.measure() }, None)
        } else {
            (quote! { ::pfp::Guard::empty() }, Some(lap_with(&name, amounts)))
        }
    };
    // Borrowed once, since nothing changes it if no lap follows.
    quote! { let mut #guard = #begun; let _ = &mut #guard; #first }.into()
}

/// Ends the region before and begins the next, with a single reading of the clock.
/// To be used in a block, or inside one, that has a [`laps!`]. Each place is a
/// point of its own.
#[proc_macro]
pub fn lap(next: TokenStream) -> TokenStream {
    let Lap { name, amounts } = parse_macro_input!(next as Lap);
    if amounts.is_empty() {
        let (point, guard) = (point(&name), guard());
        return quote! { #guard.lap(#point) }.into();
    }
    lap_with(&name, amounts).into()
}

/// A lap to a region with amounts.
fn lap_with(name: &LitStr, amounts: Vec<(Ident, Expr)>) -> proc_macro2::TokenStream {
    let guard = guard();
    let (names, values): (Vec<_>, Vec<_>) =
        amounts.into_iter().map(|(name, value)| (name.to_string(), value)).unzip();
    quote! {{
        static __PFP_POINT: ::pfp::Timed = ::pfp::Timed::new(#name, &[#(#names),*]);
        #guard.lap_with(&__PFP_POINT, [#(::pfp::Amount::amount(#values)),*]);
    }}
}

/// What a lap has: its name, and amounts if it has any.
struct Lap {
    name: LitStr,
    amounts: Vec<(Ident, Expr)>,
}

impl Parse for Lap {
    fn parse(input: ParseStream<'_>) -> syn::Result<Self> {
        // Looked at first, so that what is missing is named.
        let name = input.fork().parse()?;
        Ok(Self { name, amounts: input.parse::<Arguments>()?.amounts })
    }
}

/// What [`laps!`] declares and [`lap!`] uses; what the compiler says if there is
/// none.
fn guard() -> Ident {
    Ident::new("pfp_lap_without_laps", Span::call_site())
}

/// A point of the place where a macro is called.
fn point(name: &LitStr) -> proc_macro2::TokenStream {
    quote! {{
        static __PFP_POINT: ::pfp::Point = ::pfp::Point::new(#name);
        &__PFP_POINT
    }}
}

/// What stands in the attribute's parentheses: a name, amounts, both or nothing.
struct Arguments {
    name: Option<LitStr>,
    amounts: Vec<(Ident, Expr)>,
}

impl Parse for Arguments {
    fn parse(input: ParseStream<'_>) -> syn::Result<Self> {
        let name: Option<LitStr> = input.peek(LitStr).then(|| input.parse()).transpose()?;
        let mut amounts = Vec::new();
        while !input.is_empty() {
            if name.is_some() || !amounts.is_empty() {
                input.parse::<Token![,]>()?;
                if input.is_empty() {
                    break;
                }
            }
            let amount = input.parse()?;
            input.parse::<Token![=]>()?;
            amounts.push((amount, input.parse()?));
        }
        Ok(Self { name, amounts })
    }
}

fn expand(arguments: TokenStream, item: TokenStream) -> TokenStream {
    let item = parse_macro_input!(item as ItemFn);
    let Arguments { name, amounts } = parse_macro_input!(arguments as Arguments);
    let name = name.map_or_else(
        || item.sig.ident.to_string().trim_start_matches("r#").to_owned(),
        |name| name.value(),
    );
    if let Some(constness) = item.sig.constness {
        let problem = "a const fn cannot be measured: it may run in the compiler";
        return syn::Error::new_spanned(constness, problem).to_compile_error().into();
    }
    let ItemFn { attrs, vis, sig, block, .. } = item;
    let (names, values): (Vec<_>, Vec<_>) =
        amounts.into_iter().map(|(name, value)| (name.to_string(), value)).unzip();
    let (point, begin) = if names.is_empty() {
        let begin = quote! { let __pfp_guard = __PFP_POINT.measure(); };
        (quote! { ::pfp::Point = ::pfp::Point::new(#name) }, begin)
    } else {
        let begin = quote! {
            let mut __pfp_guard = ::pfp::TimedGuard::empty();
            __PFP_POINT.measure_in([#(::pfp::Amount::amount(#values)),*], &mut __pfp_guard);
        };
        (quote! { ::pfp::Timed = ::pfp::Timed::new(#name, &[#(#names),*]) }, begin)
    };
    let body = if sig.asyncness.is_some() {
        let amounts =
            (!names.is_empty()).then(|| quote! { [#(::pfp::Amount::amount(#values)),*], });
        // The block keeps the function's own meaning of `return` and `?`.
        quote! { __PFP_POINT.measure_async(#amounts async move #block).await }
    } else {
        quote! {
            #begin
            #block
        }
    };
    quote! {
        #(#attrs)*
        #vis #sig {
            static __PFP_POINT: #point;
            #body
        }
    }
    .into()
}
