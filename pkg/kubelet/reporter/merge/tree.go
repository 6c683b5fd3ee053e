package merge

import (
	"bytes"
	"encoding/json"
	"fmt"
)

// maxDepth is how deeply arrays and objects of a value may be nested. A zone in a zone takes two levels.
const maxDepth = 64

// parse returns a JSON document as map[string]any, []any, string, json.Number, bool or nil. It refuses members of an
// object that are there twice, since readers differ in which of them they take, and documents that are nested too
// deeply.
func parse(data []byte) (any, error) {
	if !json.Valid(data) {
		err := json.Unmarshal(data, new(json.RawMessage)) // says where the syntax is wrong
		return nil, fmt.Errorf("is no JSON: %w", err)
	}
	p := &parser{decoder: json.NewDecoder(bytes.NewReader(data))}
	p.decoder.UseNumber()
	return p.value()
}

type parser struct {
	decoder *json.Decoder
	depth   int
}

func (p *parser) value() (any, error) {
	token, err := p.decoder.Token()
	if err != nil {
		return nil, err
	}
	delim, nested := token.(json.Delim)
	if !nested {
		return token, nil
	}
	if p.depth++; p.depth > maxDepth {
		return nil, fmt.Errorf("is nested more than %d deep", maxDepth)
	}
	defer func() { p.depth-- }()
	if delim == '{' {
		return p.object()
	}
	return p.array()
}

func (p *parser) object() (any, error) {
	object := map[string]any{}
	for p.decoder.More() {
		token, err := p.decoder.Token()
		if err != nil {
			return nil, err
		}
		name, _ := token.(string) // the decoder accepts nothing else there
		if _, twice := object[name]; twice {
			return nil, fmt.Errorf("member %q is there twice", cut(name))
		}
		if object[name], err = p.value(); err != nil {
			return nil, err
		}
	}
	_, err := p.decoder.Token()
	return object, err
}

func (p *parser) array() (any, error) {
	array := []any{}
	for p.decoder.More() {
		element, err := p.value()
		if err != nil {
			return nil, err
		}
		array = append(array, element)
	}
	_, err := p.decoder.Token()
	return array, err
}
