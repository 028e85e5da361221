package tables

import "errors"

// Errors of loading and saving.
var (
	// ErrDamaged: a table's file and its .bak both exist in part but neither
	// can be read. The text names both, and what to do. Nothing was changed.
	ErrDamaged = errors.New("damaged table file")
)

// Errors of names.
var (
	// ErrTopicName: a name that can't be a topic's. The text says why.
	ErrTopicName = errors.New("illegal topic name")
)
