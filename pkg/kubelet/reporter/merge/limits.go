package merge

import "fmt"

// Limits of an answer of a plugin.
const (
	// MaxAnswerBytes is the length of all values and names of an answer together.
	MaxAnswerBytes = 1 << 20
	MaxContents    = 64
	// MaxFields is for all contents of an answer together.
	MaxFields     = 256
	MaxValueBytes = 256 << 10
)

// Validate returns an error if an answer is beyond the limits. Such an answer is refused whole. The error names the
// limit and what exceeds it. It is no check of what the answer says: Merge leaves out what is not valid.
func Validate(contents []Content) error {
	if n := len(contents); n > MaxContents {
		return fmt.Errorf("the answer has %d contents: at most %d are allowed", n, MaxContents)
	}
	fields, size := 0, 0
	for i := range contents {
		content := &contents[i]
		fields += len(content.Fields)
		size += len(content.Kind.Group) + len(content.Kind.Version) + len(content.Kind.Kind)
		for j := range content.Fields {
			field := &content.Fields[j]
			if n := len(field.Value); n > MaxValueBytes {
				return fmt.Errorf("content[%d].field[%d] (%s): the value has %d bytes: at most %d are allowed",
					i, j, cut(field.Name), n, MaxValueBytes)
			}
			size += len(field.Name) + len(field.Value)
		}
	}
	if fields > MaxFields {
		return fmt.Errorf("the answer has %d fields: at most %d are allowed", fields, MaxFields)
	}
	if size > MaxAnswerBytes {
		return fmt.Errorf("the answer has %d bytes: at most %d are allowed", size, MaxAnswerBytes)
	}
	return nil
}
