'use strict';
// Everything shown comes from clients of the server: it becomes text, never HTML.

const ROWS_MAX = 10000; // entries that the page keeps; the oldest go
const ROW_HEIGHT = 22;
const WATCHES_MAX = 200; // watches that are listed
const TEXT_MAX = 200000; // characters of a body that are shown
const NAMES_MAX = 200; // resources and clients that the filters propose
const POLL_MS = 1000;
const RETRY_MS = 1000;
const MANY = 12; // so many objects of a kind are closed at first
const TOKEN = 'fake-apiserver-token';
const VERBS = ['get', 'list', 'watch', 'create', 'update', 'patch', 'delete', 'deletecollection'];

const $ = (id) => document.getElementById(id);
const count = (number) => number.toLocaleString('en');
const placeOf = ({ namespace, name }) => [namespace, name].filter(Boolean).join('/');

/** An element with these properties, and children that are elements or texts. */
function make(tag, properties, ...children) {
  const element = Object.assign(document.createElement(tag), properties);
  element.append(...children);
  return element;
}

function setText(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

function say(text, isBad = false) {
  $('said').title = text;
  $('said').className = isBad ? 'bad' : '';
  setText($('said'), text);
}
