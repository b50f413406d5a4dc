package main

import (
	"context"
	"fmt"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	v1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/defaulting"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/objectmeta"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/pruning"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	"k8s.io/apiextensions-apiserver/pkg/crdserverscheme"
	"k8s.io/apiextensions-apiserver/pkg/registry/customresource"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	gvk "k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/rest"
)

// kinds are those that definitions were kept of.
type kinds map[gvk.GroupVersionKind]kind

type kind struct {
	structural *schema.Structural
	strategy   rest.RESTCreateStrategy
	status     rest.RESTUpdateStrategy
}

// create returns what the server keeps of the object, or why it refuses.
func (served kinds) create(text []byte) (any, error) {
	object := &unstructured.Unstructured{}
	if err := object.UnmarshalJSON(text); err != nil {
		return nil, err
	}
	if object.GroupVersionKind() == v1.SchemeGroupVersion.WithKind("CustomResourceDefinition") {
		definition, err := defined(text)
		if err != nil {
			return nil, err
		}
		return definition, served.serve(definition)
	}
	known, found := served[object.GroupVersionKind()]
	if !found {
		return nil, fmt.Errorf("no definition of %s was kept", object.GroupVersionKind())
	}
	if err := known.decode(object); err != nil {
		return nil, err
	}
	status, reported := object.Object["status"]
	if err := created(known.strategy, object.GetNamespace(), object); err != nil || !reported {
		return object, err
	}
	return known.report(object, status)
}

// report returns the object with the status that is then written to its subresource.
func (known kind) report(object *unstructured.Unstructured, status any) (any, error) {
	object.SetResourceVersion("1")
	reporting := object.DeepCopy()
	reporting.Object["status"] = status
	ctx := request.WithNamespace(context.Background(), object.GetNamespace())
	return reporting, rest.BeforeUpdate(known.status, ctx, reporting, object)
}

// serve makes ready what a server makes ready of a definition that it keeps.
func (served kinds) serve(definition *v1.CustomResourceDefinition) error {
	for _, version := range definition.Spec.Versions {
		made, err := kindOf(definition, version)
		if err != nil {
			return err
		}
		name := gvk.GroupVersionKind{
			Group: definition.Spec.Group, Version: version.Name, Kind: definition.Spec.Names.Kind,
		}
		served[name] = made
	}
	return nil
}

func kindOf(definition *v1.CustomResourceDefinition, version v1.CustomResourceDefinitionVersion) (kind, error) {
	internal := &apiextensions.CustomResourceValidation{}
	err := v1.Convert_v1_CustomResourceValidation_To_apiextensions_CustomResourceValidation(
		version.Schema.DeepCopy(), internal, nil)
	if err != nil {
		return kind{}, err
	}
	structural, err := schema.NewStructural(internal.OpenAPIV3Schema)
	if err != nil {
		return kind{}, err
	}
	if err := defaulting.PruneDefaults(structural); err != nil {
		return kind{}, err
	}
	validator, _, err := validation.NewSchemaValidator(internal.OpenAPIV3Schema)
	if err != nil {
		return kind{}, err
	}
	var status *apiextensions.CustomResourceSubresourceStatus
	var statusValidator validation.SchemaValidator
	if version.Subresources != nil && version.Subresources.Status != nil {
		status = &apiextensions.CustomResourceSubresourceStatus{}
		if part, found := internal.OpenAPIV3Schema.Properties["status"]; found {
			if statusValidator, _, err = validation.NewSchemaValidator(&part); err != nil {
				return kind{}, err
			}
		}
	}
	name := gvk.GroupVersionKind{
		Group: definition.Spec.Group, Version: version.Name, Kind: definition.Spec.Names.Kind,
	}
	strategy := customresource.NewStrategy(
		crdserverscheme.NewUnstructuredObjectTyper(),
		definition.Spec.Scope == v1.NamespaceScoped,
		name,
		validator,
		statusValidator,
		structural,
		status,
		nil, // no scale
		version.SelectableFields,
	)
	return kind{structural, strategy, customresource.NewStatusStrategy(strategy)}, nil
}

// decode does what the server's decoder of custom resources does with one, of whose parts only this
// order is not exported: unstructuredSchemaCoercer, then unstructuredDefaulter.
func (known kind) decode(object *unstructured.Unstructured) error {
	meta, found, unknown, err := objectmeta.GetObjectMetaWithOptions(object.Object,
		objectmeta.ObjectMetaOptions{ReturnUnknownFieldPaths: true})
	if err != nil {
		return err
	}
	unknown = append(unknown, pruning.PruneWithOptions(object.Object, known.structural, true,
		schema.UnknownFieldPathOptions{TrackUnknownFieldPaths: true})...)
	defaulting.PruneNonNullableNullsWithoutDefaults(object.Object, known.structural)
	refused, paths := objectmeta.CoerceWithOptions(nil, object.Object, known.structural, false,
		objectmeta.CoerceOptions{ReturnUnknownFieldPaths: true})
	if refused != nil {
		return refused
	}
	if unknown = append(unknown, paths...); len(unknown) > 0 {
		problems := make([]error, len(unknown))
		for i, path := range unknown {
			problems[i] = fmt.Errorf("unknown field %q", path)
		}
		return runtime.NewStrictDecodingError(problems)
	}
	if found {
		if err := objectmeta.SetObjectMeta(object.Object, meta); err != nil {
			return err
		}
	}
	defaulting.Default(object.Object, known.structural)
	return nil
}
