//! Renders templates of Stages.

use super::functions::{Facts, call, holds, print};
use super::template::{Node, Operand, Pipeline, Template};
use crate::api::json::Value;

/// Maximum number of nodes that a template visits when it is rendered.
const STEPS_MAX: usize = 100_000;
/// Maximum size of the rendered output, in bytes.
const BYTES_MAX: usize = 1024 * 1024;

/// Continuation after a node of the template: with the next node, or with a `break` or `continue` of the enclosing
/// loop.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Flow {
    Next,
    Break,
    Continue,
}

struct Run<'a> {
    facts: &'a Facts,
    variables: Vec<(String, Value)>,
    steps: usize,
    text: String,
}

impl Template {
    /// Renders the template for an object.
    pub(super) fn render(&self, object: &Value, facts: &Facts) -> Result<String, String> {
        let mut run = Run {
            facts,
            variables: vec![(String::new(), object.clone())],
            steps: 0,
            text: String::new(),
        };
        run.walk(&self.0, object)?;
        Ok(run.text)
    }
}

impl Run<'_> {
    fn walk(&mut self, nodes: &[Node], dot: &Value) -> Result<Flow, String> {
        let scope = self.variables.len();
        let mut flow = Flow::Next;
        for node in nodes {
            self.steps += 1;
            if self.steps > STEPS_MAX || self.text.len() > BYTES_MAX {
                return Err(format!(
                    "the template exceeds {STEPS_MAX} nodes or {BYTES_MAX} bytes of output"
                ));
            }
            flow = self.step(node, dot)?;
            if flow != Flow::Next {
                break;
            }
        }
        self.variables.truncate(scope);
        Ok(flow)
    }

    fn step(&mut self, node: &Node, dot: &Value) -> Result<Flow, String> {
        match node {
            Node::Text(text) => self.text += text,
            Node::Pipeline(pipeline) => {
                let value = self.pipeline(pipeline, dot)?;
                if pipeline.variables.is_empty() {
                    self.text += &print(&value);
                }
            }
            Node::If(cases, otherwise) => return self.branch(cases, otherwise, dot),
            Node::With(pipeline, body, otherwise) => {
                let scope = self.variables.len();
                let value = self.pipeline(pipeline, dot)?;
                let flow = match holds(&value) {
                    true => self.walk(body, &value),
                    false => self.walk(otherwise, dot),
                };
                self.variables.truncate(scope);
                return flow;
            }
            Node::Range(pipeline, body, otherwise) => return self.range(pipeline, body, otherwise, dot),
            Node::Break => return Ok(Flow::Break),
            Node::Continue => return Ok(Flow::Continue),
        }
        Ok(Flow::Next)
    }

    fn branch(&mut self, cases: &[(Pipeline, Vec<Node>)], otherwise: &[Node], dot: &Value) -> Result<Flow, String> {
        let scope = self.variables.len();
        for (condition, body) in cases {
            let value = self.pipeline(condition, dot)?;
            if holds(&value) {
                let flow = self.walk(body, dot);
                self.variables.truncate(scope);
                return flow;
            }
        }
        let flow = self.walk(otherwise, dot);
        self.variables.truncate(scope);
        flow
    }

    fn range(&mut self, over: &Pipeline, body: &[Node], otherwise: &[Node], dot: &Value) -> Result<Flow, String> {
        let value = self.commands(over, dot)?;
        let items: Vec<(Value, Value)> = match &value {
            Value::Array(list) => (0_i64..).map(Value::from).zip(list.iter().cloned()).collect(),
            Value::Object(map) => map
                .iter()
                .map(|(key, item)| (key.as_str().into(), item.clone()))
                .collect(),
            Value::Null => Vec::new(),
            other => return Err(format!("range can't iterate over {}", print(other))),
        };
        if items.is_empty() {
            return self.walk(otherwise, dot);
        }
        let scope = self.variables.len();
        for (index, item) in items {
            match over.variables.as_slice() {
                [] => {}
                [only] => self.variables.push((only.clone(), item.clone())),
                [first, second, ..] => {
                    self.variables.push((first.clone(), index));
                    self.variables.push((second.clone(), item.clone()));
                }
            }
            let flow = self.walk(body, &item)?;
            self.variables.truncate(scope);
            if flow == Flow::Break {
                break;
            }
        }
        Ok(Flow::Next)
    }

    /// Evaluates a pipeline, and assigns the value to its variables.
    fn pipeline(&mut self, pipeline: &Pipeline, dot: &Value) -> Result<Value, String> {
        let value = self.commands(pipeline, dot)?;
        for name in &pipeline.variables {
            if pipeline.declares {
                self.variables.push((name.clone(), value.clone()));
                continue;
            }
            let known = self.variables.iter_mut().rev().find(|(it, _)| it == name);
            let (_, place) = known.ok_or_else(|| format!("undefined variable ${name}"))?;
            place.clone_from(&value);
        }
        Ok(value)
    }

    fn commands(&mut self, pipeline: &Pipeline, dot: &Value) -> Result<Value, String> {
        let mut handed: Option<Value> = None;
        for command in &pipeline.commands {
            let (first, arguments) = command.split_first().ok_or("missing value for command")?;
            let mut values = Vec::new();
            for argument in arguments {
                values.push(self.operand(argument, dot)?);
            }
            values.extend(handed.take());
            handed = Some(match first {
                Operand::Function(name) => call(name, &values, self.facts)?,
                _ if !values.is_empty() => return Err("can't give argument to non-function".to_owned()),
                value => self.operand(value, dot)?,
            });
        }
        Ok(handed.unwrap_or_default())
    }

    fn operand(&mut self, operand: &Operand, dot: &Value) -> Result<Value, String> {
        Ok(match operand {
            Operand::Dot => dot.clone(),
            Operand::Literal(value) => value.clone(),
            Operand::Function(name) => call(name, &[], self.facts)?,
            Operand::Group(pipeline) => self.pipeline(pipeline, dot)?,
            Operand::Variable(name) => {
                let known = self.variables.iter().rev().find(|(it, _)| it == name);
                known.ok_or_else(|| format!("undefined variable ${name}"))?.1.clone()
            }
            Operand::Field(of, names) => {
                let value = self.operand(of, dot)?;
                let mut field = Some(&value);
                for name in names {
                    field = field.and_then(|it| it.get(name.as_str()));
                }
                field.cloned().unwrap_or_default()
            }
        })
    }
}
