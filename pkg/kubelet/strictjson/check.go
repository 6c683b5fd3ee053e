package strictjson

import (
	"fmt"
	"strconv"
	"strings"
)

// check holds a document, whose syntax is valid, against the limits. It allocates nothing but the stack of arrays and
// objects that are open.
func check(data []byte, limits *Limits) error {
	c := checker{limits: limits}
	for i := 0; i < len(data); i++ {
		if err := c.next(data, &i); err != nil {
			return err
		}
	}
	return nil
}

type checker struct {
	limits *Limits
	open   []level
	// total is how many elements were read.
	total int
}

// level is an array or an object that is open.
type level struct {
	object bool
	// elements is the number of the element that is being read, from zero; name is its name in an object.
	elements int
	name     []byte
	// named: the name of the present member was read.
	named bool
	most  int
}

// next reads a string, or a byte that is none.
func (c *checker) next(data []byte, i *int) error {
	var top *level
	if len(c.open) > 0 {
		top = &c.open[len(c.open)-1]
	}
	switch data[*i] {
	case '"':
		text := stringAt(data, i)
		if len(text) > c.limits.String {
			return fmt.Errorf("%s: a string of %d bytes, more than %d", c.path(), len(text), c.limits.String)
		}
		if top != nil && top.object && !top.named {
			top.name, top.named = text, true
		}
	case '{', '[':
		return c.begin(data[*i] == '{')
	case '}', ']':
		c.open = c.open[:len(c.open)-1]
	case ',':
		top.elements++
		top.named = false
		if top.elements >= top.most {
			return fmt.Errorf("%s: more than %d elements", pathOf(c.open[:len(c.open)-1]), top.most)
		}
		return c.count()
	}
	return nil
}

func (c *checker) begin(object bool) error {
	if len(c.open) >= c.limits.Depth {
		return fmt.Errorf("%s: nested more than %d deep", c.path(), c.limits.Depth)
	}
	most := c.limits.Elements
	if len(c.open) > 0 {
		most = max(most, c.limits.Fields[string(c.open[len(c.open)-1].name)])
	}
	c.open = append(c.open, level{object: object, most: most})
	return c.count()
}

// count counts the first element of an array or an object, which may be missing, and those after a comma.
func (c *checker) count() error {
	if c.total++; c.total > c.limits.Total {
		return fmt.Errorf("%s: more than %d elements in the document", c.path(), c.limits.Total)
	}
	return nil
}

// path names the value that is being read.
func (c *checker) path() string { return pathOf(c.open) }

func pathOf(open []level) string {
	var path strings.Builder
	for i := range open {
		switch l := &open[i]; {
		case !l.object:
			path.WriteString("[" + strconv.Itoa(l.elements) + "]")
		case i == 0:
			path.Write(l.name)
		case l.name != nil:
			path.WriteString("." + string(l.name))
		}
	}
	if path.Len() == 0 {
		return "the document"
	}
	return path.String()
}

// stringAt returns the text between the quotation mark at i and the next one, escapes as they are written, and leaves
// i at the end of the string.
func stringAt(data []byte, i *int) []byte {
	begin := *i + 1
	for *i = begin; data[*i] != '"'; *i++ {
		if data[*i] == '\\' {
			*i++
		}
	}
	return data[begin:*i]
}
