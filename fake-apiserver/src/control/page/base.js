'use strict';
// All displayed data comes from clients of the server, so it is inserted as text, never as HTML.

const ROWS_MAX = 10000; // maximum number of entries that the page keeps; the oldest are removed
const ROW_HEIGHT = 22;
const WATCHES_MAX = 200; // maximum number of listed watches
const TEXT_MAX = 200000; // maximum number of displayed characters of a body
const NAMES_MAX = 200; // maximum number of resources and clients that the filters propose
const POLL_MS = 1000;
const RETRY_MS = 1000;
const MANY = 12; // maximum number of objects of a kind that is expanded at first
const TOKEN = 'fake-apiserver-token';
const VERBS = ['get', 'list', 'watch', 'create', 'update', 'patch', 'delete', 'deletecollection'];

const $ = (id) => document.getElementById(id);
const count = (number) => number.toLocaleString('en');
const placeOf = ({ namespace, name }) => [namespace, name].filter(Boolean).join('/');

/** Creates an element with these properties and children, which are elements or strings. */
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
