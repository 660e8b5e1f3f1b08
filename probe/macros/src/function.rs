//! The attribute for a function: measures its calls, or the polls of its future.

use proc_macro2::{Ident, Span, TokenStream};
use quote::{ToTokens, quote};
use syn::token::Brace;
use syn::{AttrStyle, Block, Expr, ItemFn, ReturnType, Stmt, Type, parse_quote};

use crate::arguments::{Amounts, Arguments};

/// Expands to the function, with a static point in its body, and with its body measured.
pub(crate) fn expand(arguments: Arguments, item: ItemFn) -> syn::Result<TokenStream> {
    let Arguments { krate, name, amounts } = arguments;
    let ItemFn { attrs, vis, sig, mut block, .. } = item;
    // The braces get the macro's span, so that the compiler does not report them as unused if they
    // enclose a single expression.
    let written = block.brace_token.span.join();
    block.brace_token = Brace(Span::mixed_site().located_at(written));
    if let Some(constness) = sig.constness {
        let problem = "a const fn cannot be measured: it may run in the compiler";
        return Err(syn::Error::new_spanned(constness, problem));
    }
    let name = name.map_or_else(
        || sig.ident.to_string().trim_start_matches("r#").to_owned(),
        |name| name.value(),
    );
    let point = if amounts.is_empty() {
        quote! { #krate::Point = #krate::Point::new(#name) }
    } else {
        let names = amounts.names();
        quote! { #krate::MeteredPoint = #krate::MeteredPoint::new(#name, #names) }
    };
    let future = MeasuredFuture { krate: &krate, amounts: &amounts };
    let body = if sig.asyncness.is_some() {
        future.of_a_body(&sig.output, &block)
    } else if future.wrap_end_of(&mut block) {
        block.stmts.iter().map(ToTokens::to_token_stream).collect()
    } else if let ReturnType::Type(_, output) = &sig.output
        && is_future(output)
    {
        let problem = "only the making of this future would be measured: let the function end \
                       with `async move { ... }` or `Box::pin(async move { ... })`, or measure \
                       inside it with `Point::measure_async`";
        return Err(syn::Error::new_spanned(output, problem));
    } else {
        call(&krate, &amounts, &block)
    };
    let (inner, outer): (Vec<_>, Vec<_>) =
        attrs.into_iter().partition(|attr| matches!(attr.style, AttrStyle::Inner(_)));
    Ok(quote! {
        #(#outer)*
        #vis #sig {
            #(#inner)*
            static __PFP_POINT: #point;
            #body
        }
    })
}

/// The body of a function whose calls are measured.
fn call(krate: &syn::Path, amounts: &Amounts, block: &Block) -> TokenStream {
    // The span makes this a name that the body cannot refer to.
    let guard = Ident::new("__pfp_guard", Span::mixed_site());
    let values = (!amounts.is_empty()).then(|| amounts.values(krate));
    quote! {
        let #guard = __PFP_POINT.measure(#values);
        #block
    }
}

/// Code that measures a future.
struct MeasuredFuture<'a> {
    krate: &'a syn::Path,
    amounts: &'a Amounts,
}

impl MeasuredFuture<'_> {
    fn wrap(&self, future: &impl ToTokens) -> TokenStream {
        let amounts = (!self.amounts.is_empty()).then(|| {
            let values = self.amounts.values(self.krate);
            quote! { #values, }
        });
        quote! { __PFP_POINT.measure_async(#amounts #future) }
    }

    /// The body of an `async fn`.
    fn of_a_body(&self, output: &ReturnType, block: &Block) -> TokenStream {
        // In an `async` block, `return` and `?` work as in the function, but the compiler knows
        // their type only from a `return` of that type. The `return` that is added here never runs.
        let typed = match output {
            ReturnType::Type(_, output) if can_be_named(output) => Some(quote! {
                #[allow(unreachable_code, clippy::diverging_sub_expression)]
                if false {
                    let returned: #output = ::core::unreachable!();
                    return returned;
                }
            }),
            _ => None,
        };
        let measured = self.wrap(&quote! { async move { #typed #block } });
        quote! { #measured.await }
    }

    /// Wraps the futures with which a block ends. Returns false, and leaves the block unchanged, if
    /// any of them is not an `async` block.
    fn wrap_end_of(&self, block: &mut Block) -> bool {
        let end = block.stmts.iter_mut().rev().find(|stmt| !matches!(stmt, Stmt::Item(_)));
        let Some(Stmt::Expr(end, None)) = end else { return false };
        self.wrap_expression(end)
    }

    fn wrap_expression(&self, expression: &mut Expr) -> bool {
        let mut wrapped = expression.clone();
        let all = match &mut wrapped {
            Expr::Async(future) => {
                let attrs = std::mem::take(&mut future.attrs);
                let future = self.wrap(future);
                wrapped = parse_quote! { #(#attrs)* #future };
                true
            }
            Expr::Call(call) => {
                is_box_pin(&call.func)
                    && matches!(call.args.first(), Some(Expr::Async(_)))
                    && self.wrap_expression(&mut call.args[0])
            }
            Expr::Block(block) => self.wrap_end_of(&mut block.block),
            Expr::Unsafe(block) => self.wrap_end_of(&mut block.block),
            Expr::Paren(paren) => self.wrap_expression(&mut paren.expr),
            Expr::Group(group) => self.wrap_expression(&mut group.expr),
            Expr::If(branches) => {
                self.wrap_end_of(&mut branches.then_branch)
                    && branches
                        .else_branch
                        .as_mut()
                        .is_some_and(|(_, other)| self.wrap_expression(other))
            }
            Expr::Match(branches) => {
                branches.arms.iter_mut().all(|arm| self.wrap_expression(&mut arm.body))
            }
            _ => false,
        };
        if all {
            *expression = wrapped;
        }
        all
    }
}

/// Whether a variable can be declared with this type.
fn can_be_named(output: &Type) -> bool {
    fn has_impl(tokens: TokenStream) -> bool {
        tokens.into_iter().any(|token| match token {
            proc_macro2::TokenTree::Ident(ident) => ident == "impl",
            proc_macro2::TokenTree::Group(group) => has_impl(group.stream()),
            _ => false,
        })
    }
    !matches!(output, Type::Never(_)) && !has_impl(output.to_token_stream())
}

fn is_box_pin(called: &Expr) -> bool {
    let Expr::Path(path) = called else { return false };
    let mut last = path.path.segments.iter().rev();
    last.next().is_some_and(|segment| segment.ident == "pin")
        && last.next().is_some_and(|segment| segment.ident == "Box")
}

/// Whether a type is obviously a future: `impl Future`, `Pin<Box<dyn Future>>`, or an alias for
/// these from the crate `futures`.
fn is_future(output: &Type) -> bool {
    use syn::{GenericArgument, PathArguments, TypeParamBound};

    fn has_future<'a>(mut bounds: impl Iterator<Item = &'a TypeParamBound>) -> bool {
        bounds.any(|bound| {
            let TypeParamBound::Trait(bound) = bound else { return false };
            bound.path.segments.last().is_some_and(|segment| segment.ident == "Future")
        })
    }
    match output {
        Type::ImplTrait(output) => has_future(output.bounds.iter()),
        Type::TraitObject(output) => has_future(output.bounds.iter()),
        Type::Paren(output) => is_future(&output.elem),
        Type::Group(output) => is_future(&output.elem),
        Type::Path(output) => output.path.segments.last().is_some_and(|segment| {
            let name = segment.ident.to_string();
            matches!(&*name, "BoxFuture" | "LocalBoxFuture")
                || matches!(&*name, "Pin" | "Box")
                    && matches!(&segment.arguments, PathArguments::AngleBracketed(inside)
                    if inside.args.iter().any(|argument| {
                        matches!(argument, GenericArgument::Type(inside) if is_future(inside))
                    }))
        }),
        _ => false,
    }
}
