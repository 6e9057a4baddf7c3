package main

import (
	"net/url"
	"strconv"
	"strings"
)

// words are those of one line: separated by one space, bytes percent-encoded.
type words struct {
	left []string
}

func newWords(line string) *words {
	return &words{strings.Split(line, " ")}
}

// next is empty after the last word.
func (w *words) next() string {
	if len(w.left) == 0 {
		return ""
	}
	word, err := url.QueryUnescape(w.left[0])
	if err != nil {
		panic(err)
	}
	w.left = w.left[1:]
	return word
}

func (w *words) number() int {
	number, err := strconv.Atoi(w.next())
	if err != nil {
		panic(err)
	}
	return number
}

func encode(value string) string {
	// To be read by people, too.
	return strings.NewReplacer("%2F", "/", "%3A", ":").Replace(url.QueryEscape(value))
}
